"""The child process that serves: `python -m bench.zero_copy.serving <file> <path>`.

A request is `r` with position and length, whose response is a slice, or `c`, whose response is the
CPU seconds of this process. It prints its port and runs until its parent closes stdin.
"""

import asyncio
import os
import resource
import struct
import sys

import uvloop

from penstock.logs.event_logger import message_logger
from penstock.model.slices import FileRun, FileSlice
from penstock.network.in_flight_request import InFlightRequest
from penstock.network.server import NetworkLimits, SendPath, Server
from penstock.purgatory.loop_timers import LoopTimers

READ = struct.Struct(">cqi")
CPU = struct.Struct(">id")
HEAD = bytes(90)  # about as many bytes as precede the records in a Fetch response


async def _serve(fd: int, path: SendPath) -> None:
    def on_request(request: InFlightRequest) -> None:
        kind = bytes(request.frame[:1])
        if kind == b"r":
            _, position, length = READ.unpack(request.frame)
            run = FileRun((FileSlice(fd, position, length),))
            size = struct.pack(">i", len(HEAD) + length)
            request.reply([size + HEAD, run])
        else:
            used = resource.getrusage(resource.RUSAGE_SELF)
            request.reply([CPU.pack(8, used.ru_utime + used.ru_stime)])

    timers = LoopTimers()
    server = Server(
        on_request=on_request,
        timers=timers,
        limits=NetworkLimits(),
        send_path=path,
        logger=message_logger(print),
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(timers.run(), name="timers")
        print(server.bind("PLAINTEXT", "127.0.0.1", 0)[1], flush=True)
        server.start()
        await asyncio.to_thread(sys.stdin.read)
        await server.close(100)
        timers.stop()


if __name__ == "__main__":
    uvloop.run(_serve(os.open(sys.argv[1], os.O_RDONLY), SendPath(sys.argv[2])))

// A member of a group in ZooKeeper with wvanbergen's consumergroup: writes a line for every message
// that it has processed.
//
//	member ZOOKEEPER GROUP TOPIC JOURNAL
//
// A line is the time on this machine's monotonic clock, partition, offset and value; SIGTERM closes
// the member in order. The lines are those of
// tests/cluster/zookeeper_member.py.
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"github.com/Shopify/sarama"
	"github.com/wvanbergen/kafka/consumergroup"
)

func main() {
	zookeeper, group, topic, path := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	journal, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	log.SetOutput(os.Stdout)
	sarama.Logger = log.Default()
	config := consumergroup.NewConfig()
	config.Version = sarama.V2_8_0_0 // the fetch that brokers serve today
	config.ChannelBufferSize = 0     // a message that it hands out is about to be processed
	config.Zookeeper.Timeout = 3 * time.Second
	config.Offsets.Initial = sarama.OffsetOldest
	config.Offsets.CommitInterval = time.Second
	config.Consumer.Return.Errors = true
	consumer, err := consumergroup.JoinConsumerGroup(group, []string{topic}, []string{zookeeper}, config)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for err := range consumer.Errors() {
			log.Println("error:", err)
		}
	}()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for {
		select {
		case <-stop:
			if err := consumer.Close(); err != nil {
				log.Fatal(err)
			}
			return
		case message := <-consumer.Messages():
			fmt.Fprintf(journal, "%.6f %d %d %s\n", monotonic(), message.Partition, message.Offset, message.Value)
			if err := consumer.CommitUpto(message); err != nil {
				log.Fatal(err)
			}
		}
	}
}

// The clock of Python's time.monotonic.
func monotonic() float64 {
	var now syscall.Timespec
	const clockMonotonic = 1
	_, _, code := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	if code != 0 {
		log.Fatal(code)
	}
	return float64(now.Sec) + float64(now.Nsec)/1e9
}

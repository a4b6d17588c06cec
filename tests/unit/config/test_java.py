"""Finding Java: JAVA_HOME first, old versions skipped, and an error that says what to do."""

from pathlib import Path

import pytest

from penstock.config.java import JavaMissing, find_java


def make_java(home: Path, *, release_file: str | None = None, answer: str | None = None) -> Path:
    """Make a folder that looks like a Java installation; its command prints `answer`, or fails."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{answer}' >&2\n" if answer else "#!/bin/sh\nexit 1\n")
    command.chmod(0o755)
    if release_file is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release_file}"\n')
    return home


def test_java_home_comes_before_the_path_and_the_path_before_folders(tmp_path: Path) -> None:
    chosen = make_java(tmp_path / "chosen", release_file="21.0.1")
    on_path = make_java(tmp_path / "on_path", release_file="17.0.15")
    make_java(tmp_path / "jvm" / "other", release_file="25")
    folders = [f"{tmp_path}/jvm/*"]
    path = {"PATH": str(on_path / "bin")}
    first = find_java(environment={**path, "JAVA_HOME": str(chosen)}, folders=folders)
    second = find_java(environment=path, folders=folders)
    third = find_java(environment={"PATH": ""}, folders=folders)
    assert first == (str(chosen), str(chosen / "bin" / "java"), 21)
    assert (second.home, second.release) == (str(on_path), 17)
    assert (third.home, third.release) == (str(tmp_path / "jvm" / "other"), 25)


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", release_file="1.8.0_392")
    new = make_java(tmp_path / "jvm" / "new", release_file="17")
    environment = {"JAVA_HOME": str(old), "PATH": ""}
    folders = [f"{tmp_path}/jvm/*"]
    assert find_java(environment=environment, folders=folders).home == str(new)
    assert find_java(8, environment=environment, folders=folders).release == 8


def test_a_symlink_on_the_path_is_resolved_to_its_home(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", release_file="17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java(environment={"PATH": f"{tmp_path}/bin"}, folders=[]).home == str(home)


@pytest.mark.parametrize(
    ("answer", "release"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_392"', 8)],
)
def test_without_a_release_file_the_command_reports_its_version(
    tmp_path: Path, answer: str, release: int
) -> None:
    home = make_java(tmp_path / "home", answer=answer)
    java = find_java(8, environment={"JAVA_HOME": str(home), "PATH": ""}, folders=[])
    assert java.release == release


def test_the_error_lists_candidates_and_advice(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", release_file="11.0.2")
    make_java(tmp_path / "jvm" / "broken")
    with pytest.raises(JavaMissing) as refused:
        find_java(environment={"JAVA_HOME": str(old), "PATH": ""}, folders=[f"{tmp_path}/jvm/*"])
    message = str(refused.value)
    assert f"{old} (Java 11)" in message
    assert f"{tmp_path}/jvm/broken (no working Java)" in message
    assert "Java 17 or newer is needed" in message
    assert "apt install openjdk-17-jre-headless" in message


def test_a_java_home_without_java_is_named_in_the_error(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": ""}
    with pytest.raises(JavaMissing, match="gone \\(no working Java\\)"):
        find_java(environment=environment, folders=[])


def test_the_error_says_if_there_is_no_java(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="no Java was found; install one"):
        find_java(environment={"PATH": str(tmp_path)}, folders=[])

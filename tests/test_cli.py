import os
import subprocess
import sys

import pytest

from metriscope.cli import main

SMALL = ["reproduce", "mahalanobis", "--dims", "1", "3", "--trials", "2", "--epochs", "20", "--samples", "50"]


def test_a_small_study_writes_page_tables_and_store(tmp_path, capsys):
    assert main([*SMALL, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "appendix.html", "tables", "runs"}
    for table in (tmp_path / "tables").glob("*.csv"):
        assert table.with_suffix(".parquet").exists()
    assert main(["runs", "list", "--out", str(tmp_path)]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert any(" DistanceTraining " in line and "dim=3" in line for line in listed)
    assert main(["runs", "show", listed[0].split()[0], "--out", str(tmp_path)]) == 0
    assert "provenance" in capsys.readouterr().out
    assert main(["runs", "verify", "--out", str(tmp_path)]) == 0
    assert "all intact" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reproduce", "nonsense"], "unknown study 'nonsense': there are mahalanobis"),
        (["reproduce", "mahalanobis", "--trials", "-3"], "--trials must be at least 1, not -3"),
        (["reproduce", "mahalanobis", "--dims", "0"], "--dims must be 1 or more, not 0"),
        (
            ["reproduce", "mahalanobis", "--activations", "tanh"],
            "unknown activation 'tanh': there are abs, relu, sigmoid",
        ),
        (
            ["reproduce", "mahalanobis", "--out", "/dev/null/x"],
            "cannot write to --out /dev/null/x: a file stands where a folder should be",
        ),
        (["runs", "list", "--out", "nowhere"], "there is no store at nowhere/runs"),
        (["runs", "show", "--out", "."], "there is no store at runs"),
        (["bench", "nonsense"], "unknown benchmark 'nonsense'"),
    ],
)
def test_bad_input_gives_one_clear_sentence_and_a_status(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"metriscope: {sentence}")
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit) as status:
        main(["reproduce", "--no-such-option", "1"])
    assert status.value.code == 2


def test_help_answers_without_loading_anything_heavy():
    code = (
        "import sys\nfrom metriscope.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'numpy', 'numba', 'pandas', 'matplotlib'} & set(sys.modules)))"
    )
    for words in (["--help"], ["reproduce", "--help"], ["--version"]):
        found = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
        assert found.stdout.splitlines()[-1] == "[]"


FULL_DISK = """
set -e
for folder in FOLDERS; do mount -t tmpfs -o size=$(basename "$folder") tmpfs "$folder"; done
exec "$@"
"""
DISK_SIZES = ("16k", "64k", "400k")


def on_tiny_disks(folders, arguments):
    """Return the exit status, output and error text of one process that runs a command on each tiny disk."""
    script = FULL_DISK.replace("FOLDERS", " ".join(f'"{folder}"' for folder in folders))
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c"]
    code = (
        "import sys\nfrom metriscope.cli import main\nfrom metriscope.runs import Store\nfrom pathlib import Path\n"
        f"for out in map(Path, sys.argv[{len(arguments) + 1}:]):\n"
        f"    status = main([*sys.argv[1:{len(arguments) + 1}], '--out', str(out)])\n"
        "    print('STATUS', status, 'PROBLEMS', Store(out / 'runs').verify(), 'PAGE', (out / 'report.html').exists())"
    )
    found = subprocess.run([*command, code, *arguments, *map(str, folders)], capture_output=True, text=True)
    return found.returncode, found.stdout, found.stderr


def can_mount(folder):
    script = 'mount -t tmpfs tmpfs "$1"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(folder)]
    return os.name == "posix" and subprocess.run(command, capture_output=True).returncode == 0


def test_a_full_disk_gives_one_sentence_and_leaves_the_store_whole(tmp_path):
    try:
        mountable = can_mount(tmp_path)
    except OSError:
        mountable = False
    if not mountable:
        pytest.skip("needs the right to mount a small file system")
    folders = [tmp_path / size for size in DISK_SIZES]
    for folder in folders:
        folder.mkdir()
    code, out, err = on_tiny_disks(folders, SMALL)
    assert code == 0, err
    assert out.count("STATUS 2 PROBLEMS [] PAGE False") == len(folders)
    sentences = [line for line in err.splitlines() if line]
    assert len(sentences) == len(folders)
    assert all("disk is full" in sentence for sentence in sentences)


def test_the_command_alone_says_what_it_is_and_what_to_try(capsys):
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "measures what a neural network measures" in printed
    assert all(f"metriscope {name}" in printed for name in ("demo", "inspect", "reproduce", "--help"))


@pytest.mark.parametrize(("word", "said"), [("reprodce", "did you mean reproduce?"), ("xyzzy", "there are reproduce")])
def test_an_unknown_command_is_met_with_the_most_similar_one(word, said, capsys):
    assert main([word]) == 2
    assert said in capsys.readouterr().err


def test_the_demonstration_writes_a_page_that_inspect_would_write_too(tmp_path, monkeypatch, capsys):
    from metriscope import demo

    few = tuple(part[:300] for part in demo.digits())
    monkeypatch.setattr(demo, "digits", lambda: few)
    monkeypatch.setattr(demo, "SHOWN", 100)
    assert main(["demo", "--out", str(tmp_path / "one")]) == 0
    command = capsys.readouterr().out.splitlines()[-1].partition("metriscope inspect ")[2].split()
    assert main(["inspect", *command, "--out", str(tmp_path / "two")]) == 0
    tables = [sorted((tmp_path / name / "tables" / "inspect").glob("*.csv")) for name in ("one", "two")]
    assert tables[0]
    assert [path.read_bytes() for path in tables[0]] == [path.read_bytes() for path in tables[1]]

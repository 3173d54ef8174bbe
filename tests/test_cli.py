import csv
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import webbrowser
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import metriscope
from metriscope import benching
from metriscope.cli import main
from metriscope.commands.parsing import EXAMPLES
from metriscope.commands.study_commands import summary
from metriscope.report import Claim
from metriscope.runs import Store

SMALL = ["reproduce", "mahalanobis", "--dims", "1", "3", "--trials", "2", "--epochs", "20", "--samples", "50"]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return the folder of a small study, and what the command printed."""
    folder, printed = tmp_path_factory.mktemp("small"), io.StringIO()
    with redirect_stdout(printed):
        assert main([*SMALL, "--out", str(folder)]) == 0
    return folder, printed.getvalue()


def test_a_small_study_writes_page_tables_and_store(small, capsys):
    tmp_path, printed = small
    assert printed.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"
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


def test_repair_moves_what_is_damaged_aside_and_says_so(tmp_path, capsys):
    store = Store(tmp_path / "runs")
    damaged, _ = (store.put({"kind": "Coin\x1b[31m", "seed": seed}, {}, {}, {}) for seed in range(2))
    (damaged.path / "record.json").write_text("")
    assert main(["runs", "verify", "--out", str(tmp_path)]) == 1
    assert "1 run, 1 problem" in capsys.readouterr().out
    assert main(["runs", "repair", "--out", str(tmp_path)]) == 0
    assert f"1 run, all intact; moved to {store.root / 'damaged'}" in capsys.readouterr().out
    assert main(["runs", "verify", "--out", str(tmp_path)]) == 0
    assert f"fingerprint {store.fingerprint()}" in capsys.readouterr().out
    assert main(["runs", "list", "--out", str(tmp_path)]) == 0
    assert "Coin\\x1b[31m" in capsys.readouterr().out


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
            "cannot write to --out /dev/null/x: there is a file where a folder should be",
        ),
        (["runs", "list", "--out", "nowhere"], "there is no store at nowhere/runs"),
        (["runs", "show", "--out", "."], "there is no store at runs"),
        (["bench", "nonsense"], "unknown benchmark 'nonsense'"),
        (["demo", "--out", "/dev/null/x"], "cannot use /dev/null/x/demo: there is a file where a folder should be"),
    ],
)
def test_bad_input_gives_one_clear_sentence_and_a_status(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"metriscope: {sentence}")
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["reproduce", "--no-such-option", "1"], "unknown option of reproduce '--no-such-option': there are --"),
        (
            ["reproduce", "vq", "--profil", "quick"],
            "unknown option of reproduce vq '--profil': did you mean --profile?",
        ),
        (["inspect", "--dta", "x.npy", "models.py:net"], "unknown option of inspect '--dta': did you mean --data?"),
        (["runs", "list", "--jsn"], "unknown option of runs '--jsn': did you mean --json?"),
        (["runs", "list", "--open"], "unknown option of runs '--open': there are --"),
        (["--vesion"], "unknown option '--vesion': did you mean --version?"),
        (["reproduce", "mahalanobi"], "unknown study 'mahalanobi': did you mean mahalanobis?"),
        (["reproduce", "--profile", "papr"], "unknown --profile 'papr': did you mean paper?"),
        (["runs", "lst"], "unknown action 'lst': did you mean list?"),
        (["reproduce", "vq", "--seed", "x"], "--seed must be an integer, got 'x'"),
        (["reproduce", "mahalanobis", "--dims", "2", "a"], "--dims must be integers, got '2', 'a'"),
        (["bench", "region"], "unknown benchmark 'region': did you mean regions?"),
    ],
)
def test_an_unknown_word_is_met_with_the_most_similar_one(arguments, sentence, capsys):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"metriscope: {sentence}")
    assert printed.out == ""


def test_what_else_is_wrong_is_explained_once(capsys):
    with pytest.raises(SystemExit) as status:
        main(["inspect", "models.py:net"])
    assert status.value.code == 2
    assert capsys.readouterr().err.count("--data PATH") == 1


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


def test_json_is_all_that_standard_output_holds(small, capsys):
    tmp_path, _ = small

    def found(*words):
        assert main([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    out = ["--out", str(tmp_path)]
    told = found(*SMALL, *out)
    assert told["report"] == str(tmp_path / "report.html")
    assert told["unfinished"] == {}
    assert told["continue"] is None
    with (tmp_path / "tables" / "verdicts.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["strength"] != "not run"]
    assert [{name: one[name] for name in rows[0]} for one in told["verdicts"]] == rows
    listed = found("runs", "list", *out)
    assert {run["spec"]["study"] for run in listed} == {"mahalanobis"}
    shown = found("runs", "show", listed[0]["address"], *out)
    assert shown["spec"] == listed[0]["spec"]
    verified = found("runs", "verify", *out)
    assert len(verified.pop("fingerprint")) == 64
    assert verified == {"runs": len(listed), "problems": [], "left": []}
    assert {row["name"]: row["where"] for row in found("data", "list")}["mnist-5k"] == "embedded"
    assert found("data", "fetch", "wine") == {"name": "wine", "files": []}
    assert found("--version") == {"version": metriscope.__version__}


def test_json_of_a_benchmark_has_its_lines(capsys, monkeypatch, tmp_path):
    (tmp_path / "small.py").write_text("print('one')\nprint('two')\n")
    monkeypatch.setattr(benching, "benchmarks", lambda: {"small": tmp_path / "small.py"})
    assert main(["bench", "small", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"small": ["one", "two"]}
    assert printed.err == "benchmark small (1 of 1), which takes minutes ...\n"
    assert main(["bench", "--quiet"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("one\ntwo\n", "")


def test_a_page_of_a_network_is_told_quietly_as_json_and_opened(tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Linear(3, 5), nn.ReLU())\n"
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32))
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or len(opened) == 1)
    words = [
        f"{tmp_path}/net.py:net",
        "--data",
        f"{tmp_path}/x.npy",
        "--out",
        str(tmp_path / "out"),
        "--open",
        "--quiet",
    ]
    assert main(["inspect", *words, "--json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert printed.err == ""
    assert found["report"] == str(tmp_path / "out" / "inspect.html")
    assert found["findings"]
    assert all(Path(table).is_file() for table in found["tables"].values())
    pair = [f"{tmp_path}/net.py:net"] * 2
    assert main(["compare", *pair, *words[1:]]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"report: {tmp_path / 'out' / 'compare.html'}\n"
    assert printed.err == f"metriscope: no browser could be opened to show {tmp_path / 'out' / 'compare.html'}\n"
    assert opened == [(tmp_path / "out" / page).as_uri() for page in ("inspect.html", "compare.html")]


def test_a_stopped_study_reports_what_is_there_and_how_to_continue(tmp_path, monkeypatch, capsys):
    from metriscope.runs.shards import InProcess

    computed, whole = [], InProcess.compute

    def stopped_at_the_third_group(self, shards):
        computed.append(shards)
        if len(computed) == 3:
            raise KeyboardInterrupt
        return whole(self, shards)

    monkeypatch.setattr(InProcess, "compute", stopped_at_the_third_group)
    command = [*SMALL, "--out", str(tmp_path)]
    assert main(command) == 130
    lines = capsys.readouterr().out.splitlines()
    assert f"to continue: metriscope {' '.join(command)}" in lines
    assert lines[-1] == f"report: {tmp_path / 'report.html'}"
    assert "It was stopped before this study was done" in (tmp_path / "appendix.html").read_text(encoding="utf-8")
    assert main(["runs", "verify", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("12 runs, all intact\n")


def test_a_second_interrupt_ends_at_once(tmp_path, monkeypatch, capsys):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("metriscope.studies.runner.run_study", interrupted)
    assert main([*SMALL, "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "metriscope: stopped; run the same command to continue\n"
    assert not (tmp_path / "report.html").exists()


def test_the_summary_counts_verdicts_with_their_strengths_and_names_what_is_contradicted():
    kinds = [("C01", "supported", "exact"), ("C02", "supported", "hint"), ("C03", "contradicted", "hint")]
    claims = [Claim(key, f"sentence {key}", "source", verdict, "why", strength=how) for key, verdict, how in kinds]
    assert summary(claims).splitlines() == [
        "3 claims judged",
        "  supported      2  (1 exact, 1 hint)",
        "  contradicted   1  (1 hint)",
        "contradicted:",
        "  C03 (hint): sentence C03",
    ]
    assert summary([]) == "no claim was judged\n"


def test_runs_are_listed_in_columns_cut_to_the_terminal(tmp_path, monkeypatch, capsys):
    store = Store(tmp_path / "runs")
    for kind, study in (("Short", "one"), ("MuchLonger", "seventeen")):
        store.put({"kind": kind, "study": study, "values": list(range(40))}, {}, {}, {})
    words = ["runs", "list", "--out", str(tmp_path)]
    assert main(words) == 0
    whole = capsys.readouterr().out.splitlines()
    assert {line.index("values=") for line in whole} == {len("0123456789ab  seventeen  MuchLonger  ")}
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [f"{line[:59]}…" for line in whole]


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_examples_of_options_that_exist(command, capsys):
    with pytest.raises(SystemExit):
        main([*([command] if command else []), "--help"])
    text = capsys.readouterr().out
    shown = text.partition("examples:\n")[2].splitlines()
    assert [line.strip() for line in shown] == list(EXAMPLES[command])
    for example in EXAMPLES[command]:
        name, *words = shlex.split(example.partition("|")[0].partition(">")[0])[1:]
        study = [word for word in words[:1] if name == "reproduce" and not word.startswith("-")]
        with pytest.raises(SystemExit):
            main([name, *study, "--help"])
        options = capsys.readouterr().out.partition("examples:")[0]
        assert all(word in options for word in words if word.startswith("--"))


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_commands_and_options(shell, capsys, tmp_path):
    with pytest.raises(SystemExit) as stop:
        main(["--tyro-print-completion", shell])
    assert not stop.value.code
    script = capsys.readouterr().out
    assert all(word in script for word in ("inspect", "reproduce", "--data", "--profile"))
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True)

"""Every fault of a configuration is named with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from pliant.protos.address import TcpAddress
from pliant.server.config import (
    Config,
    ConfigError,
    check_config,
    load_config,
    parse_options,
)
from testkit import run_python


@pytest.mark.case(61)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"offer_timeout_s": "soon"}, "offer_timeout_s: expected a number of seconds, got str"),
        ({"strategy_options": ["a"]}, "strategy_options: expected object, got array"),
        ({"strategy_options": {"lower": [1]}}, "strategy_options: lower: expected one value"),
        ({"strategy_deadline_s": 0}, "strategy_deadline_s: must be above 0"),
        ({"debug": 1}, "debug: expected bool, got int"),
        ({"resources": {"a b": 1}}, "resources: 'a b' is no name; write letters"),
        ({"resources": {"lic": -1}}, "resources.lic: expected 0 to 1000000, got -1"),
        ({"resources": {"lic": "1"}}, "expected int, got str"),
        ({"fairshare": {"half_life": "x"}}, "fairshare.half_life: expected a time"),
        ({"fairshare": {"shares": {"bob": -1}}}, "fairshare.shares.bob: expected a number"),
        ({"fairshare": {"account": {}}}, "fairshare.account: unknown key"),
        ({"fairshare": 3}, "fairshare: expected object, got int"),
        (
            {"user_limits": {"pending_jobs": -1}},
            "user_limits.pending_jobs: expected a whole number",
        ),
        ({"user_limits": {"pending": 1}}, "user_limits.pending: unknown key"),
        (
            {"user_limits": {"users": {"bob": {"submissions_per_s": 0}}}},
            "user_limits.users.bob.submissions_per_s: expected a number above 0",
        ),
        ({"ofer_timeout_s": 1}, "ofer_timeout_s: unknown key, did you mean offer_timeout_s?"),
        ({"xyzzy": 1}, "xyzzy: unknown key; known: state_dir"),
        ({"negotiation": {"round": 1}}, "negotiation.round: unknown key, did you mean rounds?"),
        ({"negotiation": {"take": "all"}}, "expected one of helps, covers"),
        ({"negotiation": {"rounds": 0}}, "negotiation: rounds must be at least 1"),
        ({"negotiation": {"floor": 2}}, "negotiation: floor 2 is above the price 0"),
        ({"negotiation": 3}, "negotiation: expected object, got int"),
        ({"kill_grace_s": -1}, "kill_grace_s: expected a number of seconds >= 0, got -1"),
        ({"lease_s": float("nan")}, "lease_s: expected a number of seconds"),
        ({"lease_s": 1, "beat_interval_s": 2}, "lease_s: must be longer than beat_interval_s"),
        ({"beat_interval_s": 0}, "beat_interval_s: must be above 0"),
        ({"transport": "tcp"}, "transport: expected ofi or ucx, got tcp"),
        ({"listen": "0.0.0.0:7000"}, "make one with `pliant cluster init`"),
        ({"listen_applications": "127.0.0.1:1"}, "only together with listen"),
        ({"listen": "7000"}, "listen: expected host:port, got 7000"),
        ({"listen": "example.org:1"}, "listen: expected an IP address or localhost"),
        ({"listen": "127.0.0.1:99999"}, "listen: expected host:port"),
        ({"listen": "127.0.0.1:" + "9" * 5000}, "listen: expected host:port"),
        ({"interface": "a b"}, "interface: 'a b' is no name of a network interface"),
    ],
)
def test_faults_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_config(settings)
    assert message in str(error.value)


def test_a_file_and_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("lease_s: 20\nlisten: '[::1]:7001'\n")
    config = load_config(path, strategy="fcfs", listen=None)
    assert (config.lease_s, config.strategy) == (20.0, "fcfs")
    assert config.address == TcpAddress("::1", 7001)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('state_dir: "/a\\0b"', "state_dir: a zero byte"),
        ('checkpoints: "/\\ud800"', r"checkpoints: U\+D800 is half of a character"),
        ("listen: " + "[" * 5000, "nested deeper"),
        ("a: [", "not YAML"),
        ("- 1", "expected keys and values, got list"),
        ("x: 1", "x: unknown"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"^{path}: .*{message}"):
        load_config(path)


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("")
    assert load_config(path) == Config()


def test_folders_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLIANT_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.delenv("PLIANT_RUN_DIR")
    assert Config().run == tmp_path / "s" / "run"
    assert Config(run_dir="/r").run == Path("/r")


@pytest.mark.case(61)
def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("strategy: magic\n")
    done = run_python("-m", "pliant.server", "--check", "--config", str(path), check=False)
    assert done.returncode == 2
    assert "strategy:" in done.stderr
    assert "equipartition" in done.stderr
    path.write_text("strategy: fcfs\n")
    assert run_python("-m", "pliant.server", "--check", "--config", str(path)).returncode == 0


def test_options_of_the_strategy_are_put_together_by_name(tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("strategy: egs+pra\nstrategy_options: {max-tries: 5, threshold: 1}\n")
    said = parse_options(["max_tries=7", "initial=max"])
    for strategy in (None, "egs+pra"):
        config = load_config(path, strategy=strategy, strategy_options=said)
        assert config.strategy_options == {"threshold": 1, "max_tries": "7", "initial": "max"}
    assert load_config(path).strategy_options == {"max-tries": 5, "threshold": 1}
    assert load_config(path, strategy="fcfs").strategy_options == {}
    assert load_config(path, strategy="dynp", strategy_options={"lower": "1"}).strategy_options == {
        "lower": "1"
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["threshold"], "--strategy-option threshold: expected NAME=VALUE"),
        (["=3"], "--strategy-option =3: expected NAME=VALUE"),
        (["a=1", "a=2"], "--strategy-option a: given twice"),
    ],
)
def test_options_that_are_not_written_as_such(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}$"):
        parse_options(words)
    assert parse_options([]) is None


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("treshold=1", "strategy egs+pra has no option 'treshold'; it has: initial, threshold, "),
        ("threshold=few", "strategy egs+pra: option threshold: 'few' is not a whole number"),
        ("threshold=-1", "strategy egs+pra: threshold -1 is below 0"),
        ("few", "--strategy-option few: expected NAME=VALUE"),
    ],
)
def test_check_names_a_faulty_option_and_the_known_ones(option: str, message: str) -> None:
    words = ["-m", "pliant.server", "--check", "--strategy", "egs+pra", "--strategy-option", option]
    done = run_python(*words, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_identity_opens_addresses_of_the_network(tmp_path: Path) -> None:
    """Whether the identity is usable is found out when the server starts."""
    settings: dict[str, object] = {
        "state_dir": str(tmp_path),
        "run_dir": str(tmp_path / "run"),
        "listen": "10.0.0.5:7000",
    }
    with pytest.raises(ConfigError, match="pliant cluster init"):
        check_config(settings)
    (tmp_path / "identity").mkdir()
    (tmp_path / "identity" / "roots.pem").touch()
    config = check_config(settings)
    assert config.uses_tls
    assert list(map(str, config.tls_addresses)) == ["10.0.0.5:7000", "10.0.0.5:7001"]
    assert str(config.address) == f"unix:{tmp_path}/run/grpc.sock"
    more = check_config({**settings, "listen_applications": "[::1]:9"})
    assert str(more.tls_addresses[1]) == "[::1]:9"
    for wrong, message in (
        ({"listen": "10.0.0.5:65535"}, "would be 65536"),
        ({"listen": "10.0.0.5:65534"}, "the port of joining hosts would be 65536"),
        ({"listen_joining": "10.0.0.5:7000"}, "used by listen already"),
        ({"listen_joining": "10.0.0.5:7001"}, "used by listen_applications already"),
        ({"listen_applications": "10.0.0.5:7000"}, "used by listen already"),
        ({"listen_applications": "example.org:7000"}, "expected an IP address"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_config({**settings, **wrong})

"""Progress: what it says of a run, where it is quiet, and that no draw depends on it."""

import io
import math
import re
import sys
import time

import numpy as np
import pytest
from models_for_tests import regression, regression_data

import ptx
from ptx import live as live_module
from ptx import progress as progress_module
from ptx.inference import MAP, NUTS, SGLD, SVI, CyclicalSGLD, Prior
from ptx.live import Live, Thinned
from ptx.meter import Meter, Status
from ptx.progress import display
from ptx.progress_text import duration, line, rhat_text, table

SHORT = NUTS(num_draws=40, num_warmup=30, num_chains=2)
TARGET = ptx.lower(regression, regression_data())


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    """The tests' own surroundings may be CI, where all is quiet; here the terminal has 80 columns."""
    monkeypatch.delenv("CI", raising=False)
    for name, value in {"COLUMNS": "80", "LINES": "24", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only when a test says so."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    found = Clock()
    for module in (progress_module, live_module, sys.modules["ptx.meter"]):
        monkeypatch.setattr(module, "time", found)
    return found


def info(num_steps, num_chains=2, **values):
    """History with each value in all steps of all chains."""
    return {name: np.full((num_chains, num_steps), value) for name, value in values.items()}


def lines_of(capsys):
    return capsys.readouterr().err.splitlines()


def text_of(status, engine=SHORT, rhats=None, width=80, most_rows=20):
    """The table as it stands on a terminal."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(table(engine, status, rhats or {}, 12, most_rows))
    return console.file.getvalue()


def test_a_run_in_a_log_says_where_it_ended(capsys):
    ptx.infer(0, regression, regression_data(), SHORT)
    lines = lines_of(capsys)
    assert re.match(
        r"NUTS sampling: step 70/70, 40/40 draws, step size [\d.]+ to [\d.]+, accept 0\.", lines[-1]
    )
    assert "0 divergences" in lines[-1]
    assert re.search(r"R-hat \d\.\d{3} \(log density\)", lines[-1])
    assert not any("\x1b" in text for text in lines)


@pytest.mark.parametrize("engine", [SHORT, SVI(num_steps=30, num_draws=5), Prior(num_draws=30, num_chains=2)])
def test_draws_do_not_depend_on_progress(engine, monkeypatch):
    monkeypatch.setattr(live_module, "COMPILE_AFTER", 0.0)
    monkeypatch.setattr(live_module, "SHARE", math.inf)
    shown = ptx.infer(3, regression, regression_data(), engine, chunk_size=7)
    quiet = ptx.infer(3, regression, regression_data(), engine, chunk_size=7, progress=False)
    assert np.array_equal(shown.draws["w"], quiet.draws["w"])


def test_quiet_under_progress_false_and_in_ci(capsys, monkeypatch):
    ptx.infer(0, regression, regression_data(), SHORT, progress=False)
    monkeypatch.setenv("CI", "true")
    ptx.infer(0, regression, regression_data(), SHORT)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("CI", "")
    ptx.infer(0, regression, regression_data(), SHORT)
    assert lines_of(capsys)


def test_lines_keep_their_distance_and_the_last_is_never_lost(capsys, clock):
    with display(SHORT, True, TARGET) as show:
        for step in range(10, 60, 10):
            clock.now += 2.0
            show("sampling", step, info(10, acceptance_rate=0.8))
    steps = [int(re.search(r"step (\d+)/", text)[1]) for text in lines_of(capsys)]
    assert steps == [10, 40, 50]


def test_compiling_is_said_when_it_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.01)
    with display(SHORT, True, TARGET) as show:
        show("compiling", 0, {})
        time.sleep(0.2)
    assert [text.split(",")[0] for text in lines_of(capsys)] == ["NUTS compiling"]


def test_a_run_that_is_only_loaded_says_nothing(capsys):
    with display(SHORT, True, TARGET) as show:
        show("compiling", 0, {})
    assert lines_of(capsys) == []


def test_the_last_line_comes_after_an_error_too(capsys, clock):
    with pytest.raises(RuntimeError), display(SHORT, True, TARGET) as show:  # noqa: PT012
        show("compiling", 0, {})
        show("sampling", 10, info(10, acceptance_rate=0.8))
        raise RuntimeError
    assert "step 10/70" in lines_of(capsys)[-1]


@pytest.mark.parametrize("stream", [None, "closed", "broken"])
def test_a_stream_that_nobody_reads_does_not_end_the_run(monkeypatch, stream):
    class Broken(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    streams = {None: None, "closed": io.StringIO(), "broken": Broken()}
    if stream == "closed":
        streams["closed"].close()
        streams["closed"].isatty = lambda: False
    monkeypatch.setattr(sys, "stderr", streams[stream])
    assert ptx.infer(0, regression, regression_data(), SHORT).num_draws == 40


def test_a_terminal_gets_a_table_with_a_row_a_chain(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    ptx.infer(0, regression, regression_data(), SHORT)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    last = text[text.rindex("NUTS: step") :]
    assert "NUTS: step 70/70, draw 40/40 of each chain" in last
    for chain in range(2):
        assert re.search(rf"^ *{chain} +sampling +70 +40 +\d", last, re.MULTILINE)
    assert re.search(r"R-hat of 40 draws a chain: log density \d\.\d{3}", last)
    assert "compiling" in text


def test_a_terminal_that_cannot_redraw_gets_lines(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    ptx.infer(0, regression, regression_data(), SHORT)
    assert terminal.getvalue().splitlines()[-1].startswith("NUTS sampling: step 70/70")


def test_warm_up_ends_where_the_engine_says(clock):
    meter = Meter(SHORT)
    assert meter.update("compiling", 0, {}, {}, 0).phase == "compiling"
    assert meter.update("sampling", 0, {}, {}, 0).phase == "warm-up"
    assert meter.update("sampling", 30, info(30, lp=0.0), {}, 0).phase == "warm-up"
    assert meter.update("sampling", 31, info(1, lp=0.0), {}, 1).phase == "sampling"


def test_cyclical_engines_explore_and_sample(clock):
    meter = Meter(CyclicalSGLD(num_draws=4, num_cycles=2, num_chains=2))
    history = info(10, stage=1)
    assert meter.update("sampling", 10, history, {}, 0).phase == "sampling"
    history["stage"][:, -1] = 0
    assert meter.update("sampling", 20, history, {}, 0).phase == "exploring"


def test_divergences_of_warm_up_are_no_longer_counted_when_it_is_over(clock):
    meter = Meter(SHORT)
    assert meter.update("sampling", 20, info(20, diverging=True), {}, 0).bad == (20, 20)
    assert meter.update("sampling", 40, info(20, diverging=True), {}, 10).bad == (10, 10)
    assert meter.update("sampling", 45, info(5, diverging=True), {}, 15).bad == (15, 15)


def test_non_finite_steps_are_counted_to_the_end(clock):
    meter = Meter(SGLD(num_draws=10, num_warmup=30, num_chains=2))
    meter.update("sampling", 20, info(20, nonfinite=True), {}, 0)
    status = meter.update("sampling", 40, info(20, nonfinite=True), {}, 10)
    assert (status.bad_name, status.bad) == ("non-finite", (40, 40))


def test_speed_counts_the_steps_of_this_process_alone(clock):
    engine = NUTS(num_draws=1000, num_warmup=0, num_chains=2)
    meter = Meter(engine)
    meter.update("sampling", 900, {}, {}, 900)  # the run goes on from step 900
    clock.now += 5.0
    status = meter.update("sampling", 950, info(50, n_steps=3), {}, 950)
    assert status.gradients_per_second == (30.0, 30.0)
    assert status.seconds_left == 5.0


def test_speed_of_short_chunks_is_that_of_seconds(clock):
    meter = Meter(NUTS(num_draws=1000, num_warmup=0, num_chains=2))
    meter.update("sampling", 0, {}, {}, 0)
    for step in range(1, 101):
        clock.now += 0.19 if step % 2 else 0.01
        status = meter.update("sampling", step, info(1, n_steps=1), {}, step)
    assert status.gradients_per_second == pytest.approx((10.0, 10.0), rel=0.05)
    assert status.seconds_left == pytest.approx(90.0, rel=0.05)


def test_without_a_start_speed_counts_from_the_first_chunk(clock):
    meter = Meter(MAP(num_steps=100))
    assert meter.update("fitting", 10, info(10, 1, log_density=0.0), {}, 0).seconds_left is None
    clock.now += 1.0
    status = meter.update("fitting", 20, info(10, 1, log_density=0.0), {}, 0)
    assert status.gradients_per_second == (10.0,)
    assert status.seconds_left == 8.0


def test_drawing_keeps_what_was_known_of_the_fit(clock):
    meter = Meter(SVI(num_steps=10, num_chains=2))
    meter.update("fitting", 10, info(10, elbo=-3.0), {}, 0)
    status = meter.update("drawing", 10, {}, {}, 0)
    assert (status.phase, status.step, status.loss) == ("drawing", 10, (-3.0, -3.0))


FULL = Status(
    "exploring", 123456, 10000, (1.234e-05,) * 4, "log density", (-123456.0,) * 4, "non-finite", (12345,) * 4
)
FULL = FULL._replace(gradients_per_second=(123456.0,) * 4, seconds_left=123456.0)


def test_the_table_fits_eighty_columns():
    engine = CyclicalSGLD(num_draws=10**5, num_cycles=1, num_chains=4)
    names = ("log density", *(f"log p(row {row})" for row in range(4)))
    text = text_of(FULL, engine, dict.fromkeys(names, 1.01), width=200, most_rows=3)
    assert max(len(row.rstrip()) for row in text.splitlines() if "R-hat" not in row) <= 80
    narrow = text_of(FULL, engine, dict.fromkeys(names, 1.01), width=80, most_rows=3)
    assert "…" not in narrow
    for words in ("exploring", "123456", "1.234e-05", "-1.235e+05", "12345", "123,456", "34:17:36"):
        assert narrow.count(words) >= 3, words
    assert "and 1 chains more" in narrow
    assert "log p(row 3) 1.010" in " ".join(narrow.split())


def test_one_chain_has_a_row_and_no_r_hat():
    engine = NUTS(num_draws=40, num_warmup=0, num_chains=1)
    watched = Live(engine, TARGET)
    watched.update(0, info(40, 1, lp=0.0), {"w": np.zeros((1, 40, 3))}, 40)
    assert watched.rhats() == {}
    text = text_of(Status("sampling", 40, 40, (0.1,), "accept", (0.9,), "divergences", (0,)), engine)
    assert "sampling" in text
    assert "R-hat" not in text


def test_r_hat_that_is_not_there_is_never_a_pass():
    assert rhat_text(math.nan) == "n/a"
    assert rhat_text(math.inf) == "inf"
    assert rhat_text(1.0100001) == "1.011"
    assert rhat_text(1.01) == "1.010"
    status = Status("sampling", 40, 10)
    text = line(SHORT, status, {"log density": 1.0, "log p(row 0)": math.nan}, 1.0)
    assert "R-hat n/a (log p(row 0))" in text
    assert "nan" in line(SHORT, status._replace(loss_name="accept", loss=(0.8, math.nan)), {}, 1.0)


def test_too_few_draws_have_no_r_hat(clock):
    watched = Live(SHORT, TARGET)
    rng = np.random.default_rng(0)
    for first, count in ((30, 7), (37, 1)):
        history = {"lp": rng.normal(size=(2, count))}
        watched.update(first, history, {"w": np.zeros((2, count, 3))}, first + count - 30)
        assert math.isnan(watched.rhats()["log density"]) == (first == 30)


def test_draws_that_are_not_finite_have_no_r_hat(clock):
    watched = Live(SHORT, TARGET)
    history = info(20, lp=0.0)
    history["lp"][0, 3] = np.nan
    watched.update(30, history, {"w": np.zeros((2, 20, 3))}, 20)
    assert math.isnan(watched.rhats()["log density"])


def test_likelihood_of_the_first_rows_is_that_of_the_target(clock):
    watched = Live(SHORT, TARGET)
    rng = np.random.default_rng(0)
    positions = {"w": rng.normal(size=(2, 20, 3)).astype(np.float32)}
    watched.update(30, info(20, lp=0.0), positions, 20)
    assert list(watched.rhats()) == ["log density"]
    clock.now += live_module.COMPILE_AFTER
    watched.update(50, info(20, lp=0.0), positions, 40)
    draws = watched.likelihood.draws
    assert 8 <= len(draws) <= live_module.BATCH_DRAWS
    assert list(watched.rhats())[1:] == [f"log p(row {row})" for row in range(4)]
    for chain in range(2):
        for entry, draw in enumerate(draws):
            expected = TARGET.log_likelihood({"w": positions["w"][chain, draw - 20]})[:4]
            assert watched.likelihood.values[chain, entry] == pytest.approx(np.asarray(expected), rel=1e-5)


def test_noise_of_minibatches_is_not_taken_for_agreement(clock):
    history = {"log_density": np.random.default_rng(0).normal(size=(2, 20))}
    for batch_size, names in ((5, []), (20, ["log density"]), (None, ["log density"])):
        engine = SGLD(num_draws=20, num_warmup=0, num_chains=2, batch_size=batch_size)
        watched = Live(engine, TARGET)
        watched.update(0, history, {"w": np.zeros((2, 20, 3))}, 20)
        assert list(watched.rhats()) == names


def test_evaluations_stay_within_their_share_of_the_time(clock, monkeypatch):
    def slow(*_):
        clock.now += 1.0
        return np.zeros((live_module.BATCH_DRAWS, 4))

    monkeypatch.setattr(live_module, "compiled", lambda *_: slow)
    watched = Live(NUTS(num_draws=10**5, num_warmup=0, num_chains=2), TARGET)
    for chunk in range(200):
        clock.now += 2.0
        watched.update(10 * chunk, info(10, lp=0.0), {"w": np.zeros((2, 10, 3))}, 10 * (chunk + 1))
    assert 2.0 <= watched.spent <= live_module.SHARE * (clock.now - 100.0) + 2.0


@pytest.mark.parametrize("chunks", [[1] * 1000, [4096] * 5, [10, 80, 640, 3, 2000, 1]])
def test_kept_values_are_bounded_and_evenly_spread(chunks):
    thinned, done = Thinned(), 0
    for count in chunks:
        draws = thinned.wanted(done, count, 16)
        assert len(draws) <= 16
        thinned.add(draws, np.broadcast_to(draws[None, :, None], (2, len(draws), 1)))
        done += count
    assert np.array_equal(thinned.draws, np.arange(0, done, thinned.stride))
    assert np.array_equal(thinned.values[1, :, 0], thinned.draws)
    assert 1 <= len(thinned.draws) <= live_module.MOST_DRAWS


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0:00"),
        (61, "1:01"),
        (3723, "1:02:03"),
        (10**6, "11d 13h"),
        (math.inf, "n/a"),
        (math.nan, "n/a"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text

"""What the demo fits: a vision transformer on digits, a tagger on sentences; and by which engines."""

from typing import Any, NamedTuple

import numpy as np

from ptx import datasets
from ptx.data import Data
from ptx.inference import MAP, NUTS, SVI, Cosine, CyclicalSGLD
from ptx.models import Bayesian, Transformer, VisionTransformer, bayesian, likelihoods, priors

NUM_CHAINS = 2


class Size(NamedTuple):
    """Rows to train and test on, and how long the engines run."""

    train_rows: int = 300
    test_rows: int = 359
    sentences: int = 200
    test_sentences: int = 200
    map_steps: int = 1500
    svi_steps: int = 3000
    sgld_thin: int = 20
    num_warmup: int = 240
    num_draws: int = 160
    max_tree_depth: int = 6


FULL = Size()
QUICK = FULL._replace(svi_steps=1500, sgld_thin=20, num_warmup=100, num_draws=100, max_tree_depth=5)


class Task(NamedTuple):
    """A model with its data; `mask` is True at the test positions that count."""

    name: str
    title: str
    unit: str
    model: Bayesian
    train: Data
    test: Data
    classes: tuple[str, ...]
    mask: np.ndarray
    step_size: float  # of cyclical SGLD
    batch_size: int | None  # as well


BLOCKS = {"num_layers": 1, "num_heads": 2, "width": 8, "mlp_width": 16, "bias": False, "norm_gain": False}

# Scales, like step sizes, were chosen by hand on the validation part of seed 0.
DIGITS_PRIOR = priors.by_site(
    {
        "head.kernel": priors.normal("fan_in", gain=8.0),
        "embedding.kernel": priors.normal("fan_in", gain=2.0),
        "*": priors.normal("fan_in"),
    }
)
OTHER_DIGITS_PRIOR = priors.by_site(
    {
        "head.kernel": priors.student_t(4.0, "fan_in", gain=8.0),
        "embedding.kernel": priors.student_t(4.0, "fan_in", gain=2.0),
        "*": priors.student_t(4.0, "fan_in"),
    }
)
TAGGER_PRIOR = priors.by_site(
    {
        "head.kernel": priors.normal("fan_in"),
        "embedding.token": priors.normal(0.2),
        "embedding.position": priors.normal(0.03),
        "*": priors.normal("fan_in", gain=0.1),
    }
)


def digits(seed: int, size: Size) -> Task:
    """Images of 8 x 8 pixels as four patches, 10 classes."""
    data = datasets.digits(seed=seed)
    network = VisionTransformer(image_size=(8, 8), patch_size=4, num_outputs=10, **BLOCKS)
    return Task(
        name="digits",
        title="a vision transformer on handwritten digits",
        unit="images",
        model=bayesian(network, DIGITS_PRIOR, likelihoods.categorical),
        train=datasets.subset(data.train, size.train_rows, seed=seed),
        test=datasets.subset(data.test, size.test_rows, seed=seed),
        classes=data.classes,
        mask=np.ones(size.test_rows, bool),
        step_size=1e-3,
        batch_size=None,
    )


def tagger(seed: int, size: Size) -> Task:
    """Sentences of up to 16 words in a vocabulary of 500, a part of speech for each word."""
    data = datasets.tokenize(datasets.ud_ewt(), vocab_size=500, max_length=16)
    network = Transformer(
        vocab_size=500,
        max_length=16,
        num_outputs=len(data.classes),
        pooling=None,
        **BLOCKS,
    )
    test = datasets.subset(data.test, size.test_sentences, seed=seed)
    return Task(
        name="tagger",
        title="a part-of-speech tagger on English sentences",
        unit="sentences",
        model=bayesian(network, TAGGER_PRIOR, likelihoods.categorical),
        train=datasets.subset(data.train, size.sentences, seed=seed),
        test=test,
        classes=data.classes,
        mask=test.inputs["mask"],
        step_size=5e-4,
        batch_size=50,
    )


def engines(task: Task, size: Size) -> dict[str, Any]:
    """The four engines by name; all but MAP give `NUM_CHAINS` x `num_draws` draws."""
    num_draws, num_chains = size.num_draws, NUM_CHAINS
    return {
        "MAP": MAP(num_steps=size.map_steps, learning_rate=Cosine(0.03, size.map_steps)),
        "mean-field SVI": SVI(
            guide="AutoNormal",
            guide_options=(("init_scale", 0.01),),
            num_steps=size.svi_steps,
            learning_rate=Cosine(0.01, size.svi_steps),
            num_draws=num_draws,
            num_chains=num_chains,
        ),
        "cyclical SGLD": CyclicalSGLD(
            num_draws=num_draws,
            num_chains=num_chains,
            num_cycles=4,
            thin=size.sgld_thin,
            step_size=task.step_size,
            batch_size=task.batch_size,
        ),
        "NUTS": NUTS(
            num_draws=num_draws,
            num_chains=num_chains,
            num_warmup=size.num_warmup,
            max_tree_depth=size.max_tree_depth,
            step_size=0.05,
        ),
    }

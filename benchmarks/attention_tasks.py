"""The two tasks of the comparison of attentions: digits 0 to 7, and part-of-speech tags of four genres."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ptx import datasets
from ptx.data import Data
from ptx.datasets import Sentences
from ptx.demo.tasks import DIGITS_PRIOR
from ptx.models import Bayesian, Transformer, VisionTransformer, bayesian, likelihoods, priors

# By hand on the validation part of seed 0, as those of the demo. Its prior of the tagger would not do: with that
# one the queries and keys of MAP are 0, so that no attention is left to compare.
TAGGING_PRIOR = priors.by_site(
    {
        "embedding.token": priors.normal(0.5),
        "embedding.position": priors.normal(0.1),
        "*": priors.normal("fan_in"),
    }
)
VOCABULARY, LENGTH = 1000, 24
HELD_OUT_GENRE = "email"
NUM_LAYERS = 2


class Task(NamedTuple):
    """Data, the inputs that training never saw the like of, and the model for each attention and prior of weights."""

    name: str
    train: Data
    validation: Data
    test: Data
    outside: dict[str, Any]
    model: Callable[..., Bayesian]
    batch_size: int


def digits(seed: int, num_layers: int = NUM_LAYERS) -> Task:
    """Digits 0 to 7 as 16 patches; outside are the digits 8 and 9 of all parts, and the test images inverted."""
    data = datasets.digits(seed=seed)
    seen = [_rows(part, lambda part: part.targets < 8) for part in (data.train, data.validation, data.test)]
    unseen = [
        _rows(part, lambda part: part.targets >= 8) for part in (data.train, data.validation, data.test)
    ]

    def model(attention: Any = "softmax", prior: Any = DIGITS_PRIOR) -> Bayesian:
        network = VisionTransformer(
            image_size=(8, 8), patch_size=2, num_outputs=8, attention=attention, **_sizes(num_layers)
        )
        return bayesian(network, prior, likelihoods.categorical)

    some = datasets.subset(seen[0], 1000, seed=seed)  # equal sizes for all seeds: one program serves them
    train, validation = some.take(np.arange(500)), some.take(np.arange(500, 1000))
    test = datasets.subset(seen[2], 280, seed=seed)
    held_out = np.concatenate([part.inputs for part in unseen])[:350]
    outside = {"digits 8, 9": held_out, "inverted": 1 - test.inputs}
    return Task("digits", train, validation, test, outside, model, 100)


def tagging(seed: int, num_layers: int = NUM_LAYERS) -> Task:
    """Tags of answers, newsgroups, reviews and weblogs; outside are e-mails, and sentences of film reviews."""
    corpus = datasets.ud_ewt()
    corpus = datasets.Corpus(
        *(_genres(part) for part in (corpus.train, corpus.validation, corpus.test)), corpus.classes
    )
    data = datasets.tokenize(corpus, vocab_size=VOCABULARY, max_length=LENGTH)
    emails = _genres(datasets.ud_ewt().test, inside=False).words
    films = datasets.sentence_polarity(seed=seed).test.words[:600]
    outside = {
        name: datasets.encode(words, data.vocabulary, max_length=LENGTH)
        for name, words in {"e-mails": emails, "film reviews": films}.items()
    }

    def model(attention: Any = "softmax", prior: Any = TAGGING_PRIOR) -> Bayesian:
        network = Transformer(
            vocab_size=VOCABULARY,
            max_length=LENGTH,
            num_outputs=len(data.classes),
            pooling=None,
            attention=attention,
            **_sizes(num_layers),
        )
        return bayesian(network, prior, likelihoods.categorical)

    parts = ((data.train, 8000), (data.validation, 400), (data.test, 600))
    train, validation, test = (datasets.subset(part, rows, seed=seed) for part, rows in parts)
    return Task("tagging", train, validation, test, outside, model, 50)


TASKS = {"digits": digits, "tagging": tagging}


def mask_of(inputs: Any) -> np.ndarray | None:
    """Words that count, for sentences; None for images."""
    return inputs["mask"] if isinstance(inputs, dict) else None


def _sizes(num_layers: int) -> dict[str, Any]:
    sizes = {"num_layers": num_layers, "num_heads": 2, "width": 16, "mlp_width": 32}
    return sizes | {"bias": False, "norm_gain": False}


def _rows(part: Data, which: Callable[[Data], np.ndarray]) -> Data:
    return part.take(np.flatnonzero(which(part)))


def _genres(part: Sentences, inside: bool = True) -> Sentences:
    """The sentences of the genres trained on, or those of the one held out."""
    kept = [row for row, name in enumerate(part.documents) if name.startswith(HELD_OUT_GENRE) != inside]
    fields = (part.words, part.labels, part.documents)
    return Sentences(*(tuple(field[row] for row in kept) for field in fields))

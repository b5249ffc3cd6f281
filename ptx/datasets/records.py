"""What loaders return: `Dataset` holds arrays, `Corpus` holds words that are still to be tokenised."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptx.data import Data


@dataclass(frozen=True, eq=False)
class Dataset:
    """Three disjoint parts of one data set; targets are indices into `classes`.

    Args:
        train: rows to learn from.
        validation: rows to choose settings by.
        test: rows to report on.
        classes: class names; class k is `classes[k]`.
        vocabulary: for text, the word of each token id; empty otherwise.
    """

    train: Data
    validation: Data
    test: Data
    classes: tuple[str, ...]
    vocabulary: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Sentences:
    """Sentences as words, with one label each or one label per word.

    Args:
        words: the words of each sentence.
        labels: class index of each sentence, or for each sentence a tuple with the class index of each word.
        documents: id of the document that each sentence is from; empty where unknown.

    Raises:
        TypeError: a sentence given as one string, a word that is not a string, a label that is not an
            integer.
        ValueError: no sentences, a sentence without words, or counts that differ. The message names the
            sentence.
    """

    words: tuple[tuple[str, ...], ...]
    labels: tuple[int, ...] | tuple[tuple[int, ...], ...]
    documents: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "words", check_words(self.words))
        if len(self.labels) != len(self.words):
            raise ValueError(
                f"labels: {len(self.labels)} entries for {len(self.words)} sentences; give one each"
            )
        if self.documents and len(self.documents) != len(self.words):
            raise ValueError(f"documents: {len(self.documents)} entries for {len(self.words)} sentences")
        object.__setattr__(self, "labels", _check_labels(self.labels, self.words))

    @property
    def per_word(self) -> bool:
        """True where each word has a label (tagging), False where each sentence has one."""
        return isinstance(self.labels[0], tuple)


@dataclass(frozen=True, eq=False)
class Corpus:
    """Three disjoint parts of a text data set, before tokenisation; labels are indices into `classes`.

    Raises:
        ValueError: a label outside 0 .. len(classes) - 1 (part, sentence and value are named), or parts of
            which some have a label per word and some a label per sentence.
    """

    train: Sentences
    validation: Sentences
    test: Sentences
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        parts = {"train": self.train, "validation": self.validation, "test": self.test}
        if len({part.per_word for part in parts.values()}) > 1:
            raise ValueError("corpus: some parts have a label per word and some a label per sentence")
        for name, part in parts.items():
            for row, label in enumerate(part.labels):
                values = label if isinstance(label, tuple) else (label,)
                wrong = [value for value in values if not 0 <= value < len(self.classes)]
                if wrong:
                    raise ValueError(
                        f"{name}: sentence {row} has label {wrong[0]}; expected an index into classes "
                        f"{self.classes}, 0 to {len(self.classes) - 1}"
                    )


def check_words(sentences: Any) -> tuple[tuple[str, ...], ...]:
    """Sentences as tuples of words; refuses whole strings, empty sentences and an empty collection."""
    if isinstance(sentences, str) or not _is_sequence(sentences):
        raise TypeError(
            f"sentences: expected a sequence of sequences of words, got {type(sentences).__name__}"
        )
    if len(sentences) == 0:
        raise ValueError("sentences: got none; expected at least one")
    for row, words in enumerate(sentences):
        if isinstance(words, str) or not _is_sequence(words):
            raise TypeError(
                f"sentence {row}: expected a sequence of words, got {words!r}; split it into words first"
            )
        if len(words) == 0:
            raise ValueError(
                f"sentence {row}: has no words; drop it, an empty sequence has nothing to attend to"
            )
        wrong = [word for word in words if not isinstance(word, str)]
        if wrong:
            raise TypeError(f"sentence {row}: expected words as strings, got {wrong[0]!r}")
    return tuple(tuple(words) for words in sentences)


def _check_labels(labels: Any, sentences: tuple[tuple[str, ...], ...]) -> tuple[Any, ...]:
    per_word = not _is_integer(labels[0])
    labels = tuple(tuple(label) if per_word and _is_sequence(label) else label for label in labels)
    for row, (label, words) in enumerate(zip(labels, sentences, strict=True)):
        values = label if isinstance(label, tuple) else (label,)
        if isinstance(label, tuple) != per_word or not all(_is_integer(value) for value in values):
            raise TypeError(
                f"labels: sentence {row} has {label!r}; expected a class index for every sentence, or for every "
                "sentence a tuple with one class index per word"
            )
        if per_word and len(values) != len(words):
            raise ValueError(f"labels: sentence {row} has {len(values)} labels for {len(words)} words")
    return labels


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _is_sequence(value: object) -> bool:
    return isinstance(value, (tuple, list, np.ndarray))

"""Text data sets that ship inside the package; their licences are in data/LICENSES.md."""

import lzma
from importlib import resources

import numpy as np

from ptx.datasets.records import Corpus, Sentences
from ptx.datasets.sampling import split_rows


def sentence_polarity(*, seed: int = 0) -> Corpus:
    """Film reviews: 10,660 sentences, each negative (class 0) or positive (class 1).

    Sentences are lower case and split at white space as published. There is no official split; this one is
    drawn by `seed`, with the classes in proportion: test 2,132 sentences (a fifth), validation 1,066 (a
    tenth), training 7,462. The two sentences that repeat an earlier one up to punctuation were dropped, so no
    test sentence stands in the training part.

    Raises:
        TypeError, ValueError: a seed that is not a non-negative integer.

    Source: B. Pang and L. Lee, "Seeing stars: exploiting class relationships for sentiment categorization
    with respect to rating scales", ACL 2005. CC BY 4.0.
    """
    rows = _lines("sentence_polarity.tsv.xz")
    labels = np.asarray([int(label) for label, _ in rows])
    words = [tuple(sentence.split(" ")) for _, sentence in rows]
    train, validation, test = (
        Sentences(words=tuple(words[row] for row in part), labels=tuple(int(labels[row]) for row in part))
        for part in split_rows(labels, seed)
    )
    return Corpus(train, validation, test, classes=("negative", "positive"))


def ud_ewt() -> Corpus:
    """Part-of-speech tagging: Universal Dependencies English Web Treebank, words and their 17 UPOS tags.

    12,544 training, 2,001 validation and 2,077 test sentences (204,577, 25,147 and 25,094 words) in the
    official split and order, with a class index per word; `classes` are the tags in alphabetical order. Words
    are the treebank's syntactic words ("do", "n't"). `documents` are the treebank's ids, whose prefix is the
    genre: answers, email, newsgroup, reviews or weblog. The parts share no document, but 94 test sentences,
    short ones such as "Thanks !", also stand in the training part, as published.

    Source: N. Silveira et al., "A Gold Standard Dependency Corpus for English", LREC 2014; state of May 2025,
    for release 2.16. CC BY-SA 4.0.
    """
    rows = _lines("ud_ewt.tsv.xz")
    classes = tuple(sorted({tag for *_, tags in rows for tag in tags.split(" ")}))
    index = {tag: number for number, tag in enumerate(classes)}
    parts = {}
    for name in ("train", "validation", "test"):
        part = [row for row in rows if row[0] == name]
        parts[name] = Sentences(
            words=tuple(tuple(words.split(" ")) for _, _, words, _ in part),
            labels=tuple(tuple(index[tag] for tag in tags.split(" ")) for *_, tags in part),
            documents=tuple(document for _, document, _, _ in part),
        )
    return Corpus(**parts, classes=classes)


def _lines(name: str) -> list[list[str]]:
    packed = resources.files("ptx.datasets").joinpath("data", name).read_bytes()
    # not splitlines(): it also breaks at characters that may stand inside a sentence
    return [line.split("\t") for line in lzma.decompress(packed).decode("utf-8").rstrip("\n").split("\n")]

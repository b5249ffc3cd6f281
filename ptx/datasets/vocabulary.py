"""Words to token ids, by a vocabulary that is counted on the training part alone."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int

from ptx.data import Data
from ptx.datasets.records import Corpus, Dataset, Sentences, check_words
from ptx.datasets.sampling import check_integer

PAD, UNK = "<pad>", "<unk>"


def tokenize(corpus: Corpus, *, vocab_size: int = 10_000, max_length: int = 64) -> Dataset:
    """Token ids for the three parts of a corpus.

    The vocabulary is counted on `corpus.train` alone: id 0 is `<pad>`, id 1 is `<unk>`, then the most
    frequent words, equal counts in code-point order. Every other word, of any part, is `<unk>`. Sentences are
    cut after `max_length` words (for tagging, the words that are cut off are neither trained on nor scored)
    and padded on the right.

    Each part is `Data(inputs={"tokens": ids, "mask": mask}, targets=labels)`: `tokens` int32 and `mask` bool
    of shape (rows, max_length), the mask True at words and False at padding; `targets` int32 of shape
    (rows,), or with a label per word (rows, max_length) with 0 where the mask is False. Rows keep their
    order.

    Args:
        corpus: words with labels.
        vocab_size: the most ids to use, `<pad>` and `<unk>` included; `len(dataset.vocabulary)` tells how
            many are. If it covers every training word, `<unk>` never occurs in training and its embedding
            stays at the prior.
        max_length: length of every row.

    Raises:
        ValueError: `vocab_size` below 3 or `max_length` below 1.
        TypeError: a size that is not an integer, or no `Corpus`.

    Example:
        >>> from ptx import datasets
        >>> dataset = datasets.tokenize(datasets.sentence_polarity(), vocab_size=500, max_length=32)
        >>> dataset.train.inputs["tokens"].shape, dataset.vocabulary[:4]
        ((7462, 32), ('<pad>', '<unk>', '.', 'the'))
    """
    if not isinstance(corpus, Corpus):
        raise TypeError(
            f"tokenize: expected a Corpus, as sentence_polarity() gives, got {type(corpus).__name__}"
        )
    check_integer("vocab_size", vocab_size, minimum=3)
    check_integer("max_length", max_length, minimum=1)
    vocabulary = _vocabulary(corpus.train, vocab_size)

    def part(sentences: Sentences) -> Data:
        inputs = encode(sentences.words, vocabulary, max_length=max_length)
        return Data(inputs=inputs, targets=_targets(sentences, max_length))

    return Dataset(part(corpus.train), part(corpus.validation), part(corpus.test), corpus.classes, vocabulary)


def encode(
    sentences: Sequence[Sequence[str]], vocabulary: Sequence[str], *, max_length: int
) -> dict[str, Int[np.ndarray, "rows length"] | Bool[np.ndarray, "rows length"]]:
    """Inputs for sentences given as words, by the vocabulary of a tokenised `Dataset`; for new sentences.

    Gives `{"tokens": ids, "mask": mask}` as `tokenize` does. A word that is not in the vocabulary is `<unk>`;
    so are the literal words "<pad>" and "<unk>".

    Raises:
        TypeError: a sentence given as one string, or a word that is not a string.
        ValueError: no sentences, a sentence without words, or a vocabulary that does not begin with `<pad>`,
            `<unk>`.
    """
    check_integer("max_length", max_length, minimum=1)
    if tuple(vocabulary[:2]) != (PAD, UNK):
        raise ValueError(f"vocabulary: expected it to begin with {PAD}, {UNK}; got {tuple(vocabulary[:2])}")
    ids = {word: number for number, word in enumerate(vocabulary) if number > 1}
    words = check_words(sentences)
    tokens = np.zeros((len(words), max_length), np.int32)
    mask = np.zeros((len(words), max_length), bool)
    for row, sentence in enumerate(words):
        kept = [ids.get(word, 1) for word in sentence[:max_length]]
        tokens[row, : len(kept)] = kept
        mask[row, : len(kept)] = True
    return {"tokens": tokens, "mask": mask}


def _vocabulary(train: Sentences, vocab_size: int) -> tuple[str, ...]:
    counts = Counter(word for words in train.words for word in words)
    ranked = sorted(counts.keys() - {PAD, UNK}, key=lambda word: (-counts[word], word))
    return (PAD, UNK, *ranked[: vocab_size - 2])


def _targets(sentences: Sentences, max_length: int) -> Int[np.ndarray, "..."]:
    if not sentences.per_word:
        return np.asarray(sentences.labels, np.int32)
    targets = np.zeros((len(sentences.labels), max_length), np.int32)
    for row, labels in enumerate(sentences.labels):
        kept = np.asarray(labels)[:max_length]
        targets[row, : len(kept)] = kept
    return targets

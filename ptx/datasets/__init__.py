"""Small real data sets, loaded by name, in the shapes that models take.

`digits()` is ready to use. `sentence_polarity()` and `ud_ewt()` give words; `tokenize(corpus)` turns them
into ids. Every loader is deterministic in its `seed` and reads nothing from the network.
"""

from ptx.datasets.images import digits
from ptx.datasets.records import Corpus, Dataset, Sentences
from ptx.datasets.sampling import subset
from ptx.datasets.text import sentence_polarity, ud_ewt
from ptx.datasets.vocabulary import encode, tokenize

__all__ = [
    "Corpus",
    "Dataset",
    "Sentences",
    "digits",
    "encode",
    "sentence_polarity",
    "subset",
    "tokenize",
    "ud_ewt",
]

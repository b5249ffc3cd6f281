import re
from importlib import resources

import pytest

from ptx.datasets import sentence_polarity, ud_ewt


def words_only(words: tuple[str, ...]) -> str:
    return " ".join(re.findall(r"\w+", " ".join(words)))


@pytest.fixture(scope="module")
def polarity():
    return sentence_polarity()


@pytest.fixture(scope="module")
def ewt():
    return ud_ewt()


def test_polarity_has_the_published_sentences_half_of_each_class(polarity):
    parts = (polarity.train, polarity.validation, polarity.test)
    assert [len(part.words) for part in parts] == [7462, 1066, 2132]
    labels = [label for part in parts for label in part.labels]
    assert sorted(labels) == [0] * 5330 + [1] * 5330
    assert polarity.classes == ("negative", "positive")
    words = [" ".join(words) for part in parts for words in part.words]
    by_sentence = dict(zip(words, labels, strict=True))
    assert by_sentence["simplistic , silly and tedious ."] == 0
    assert by_sentence["the action clichés just pile up ."] == 0
    assert by_sentence["effective but too-tepid biopic"] == 1


def test_no_polarity_sentence_repeats_another_even_up_to_punctuation(polarity):
    parts = (polarity.train, polarity.validation, polarity.test)
    keys = [words_only(words) for part in parts for words in part.words]
    keys = [key for key in keys if key]
    assert len(set(keys)) == len(keys)


def test_polarity_text_has_no_broken_encoding(polarity):
    text = "".join(word for part in (polarity.train, polarity.test) for words in part.words for word in words)
    assert not re.search("[\x00-\x1f\x7f-\x9f]|\u00c3.|\u00c2.|\ufffd", text)
    assert "é" in text
    assert "—" in text


def test_polarity_split_is_deterministic_and_balanced(polarity):
    assert sentence_polarity(seed=0).test.words == polarity.test.words
    assert sentence_polarity(seed=1).test.words != polarity.test.words
    for part in (polarity.train, polarity.validation, polarity.test):
        assert abs(sum(part.labels) - len(part.labels) / 2) <= 1
        assert 35 < sum(part.labels[:100]) < 65


def test_polarity_refuses_a_bad_seed():
    with pytest.raises(ValueError, match="seed: expected at least 0, got -1"):
        sentence_polarity(seed=-1)


def test_ewt_has_the_official_counts(ewt):
    parts = (ewt.train, ewt.validation, ewt.test)
    assert [len(part.words) for part in parts] == [12544, 2001, 2077]
    assert [sum(map(len, part.words)) for part in parts] == [204577, 25147, 25094]
    assert len(ewt.classes) == 17
    assert ewt.classes[0] == "ADJ"
    assert ewt.classes == tuple(sorted(ewt.classes))
    assert all(part.per_word for part in parts)
    noun = ewt.classes.index("NOUN")
    assert sum(labels.count(noun) for labels in ewt.test.labels) == 4123


def test_ewt_keeps_words_beside_their_tags(ewt):
    assert ewt.validation.words[0] == ("From", "the", "AP", "comes", "this", "story", ":")
    tags = [ewt.classes[label] for label in ewt.validation.labels[0]]
    assert tags == ["ADP", "DET", "PROPN", "VERB", "DET", "NOUN", "PUNCT"]
    assert ewt.validation.documents[0] == "weblog-blogspot.com_nominations_20041117172713_ENG_20041117_172713"


def test_ewt_parts_share_no_document(ewt):
    documents = [set(part.documents) for part in (ewt.train, ewt.validation, ewt.test)]
    assert [len(ids) for ids in documents] == [540, 318, 316]
    assert len(set.union(*documents)) == 540 + 318 + 316
    genres = {document.split("-")[0] for document in ewt.train.documents}
    assert genres == {"answers", "email", "newsgroup", "reviews", "weblog"}
    train = set(ewt.train.words)
    assert sum(words in train for words in ewt.test.words) == 94  # as the docstring says


def test_the_shipped_files_are_small_and_carry_their_licences():
    folder = resources.files("ptx.datasets") / "data"
    packed = [file for file in folder.iterdir() if file.name.endswith(".xz")]
    assert sorted(file.name for file in packed) == ["sentence_polarity.tsv.xz", "ud_ewt.tsv.xz"]
    assert sum(len(file.read_bytes()) for file in packed) < 4_000_000
    notes = (folder / "LICENSES.md").read_text("utf-8")
    for file in packed:
        section = notes.split(f"## {file.name}")[1].split("\n## ")[0]
        assert "https://creativecommons.org/licenses/" in section
        assert "Changes made:" in section

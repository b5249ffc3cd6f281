from dataclasses import replace

import numpy as np
import pytest

from ptx.datasets import Corpus, Sentences, encode, sentence_polarity, tokenize, ud_ewt

TRAIN = Sentences(words=(("b", "a", "a"), ("c", "b", "a", "<pad>", "<pad>", "<pad>", "<pad>")), labels=(0, 1))
TEST = Sentences(words=(("new", "a"), ("new", "new", "new", "new", "c")), labels=(1, 0))
CORPUS = Corpus(TRAIN, TEST, TEST, classes=("no", "yes"))


def tagged(words, labels):
    part = Sentences(words=words, labels=labels)
    return Corpus(part, part, part, classes=("x", "y", "z"))


def test_words_are_ranked_by_training_count_then_alphabet():
    dataset = tokenize(CORPUS, max_length=3)
    assert dataset.vocabulary == ("<pad>", "<unk>", "a", "b", "c")
    ties = Sentences(words=(("z", "é", "m", "Z", "m"),), labels=(0,))
    assert tokenize(replace(CORPUS, train=ties)).vocabulary == ("<pad>", "<unk>", "m", "Z", "z", "é")
    assert tokenize(replace(CORPUS, train=ties), vocab_size=4).vocabulary == ("<pad>", "<unk>", "m", "Z")


def test_tokens_mask_and_targets_by_hand():
    dataset = tokenize(CORPUS, max_length=4)
    np.testing.assert_array_equal(dataset.train.inputs["tokens"], [[3, 2, 2, 0], [4, 3, 2, 1]])
    np.testing.assert_array_equal(dataset.train.inputs["mask"], [[1, 1, 1, 0], [1, 1, 1, 1]])
    np.testing.assert_array_equal(dataset.test.inputs["tokens"], [[1, 2, 0, 0], [1, 1, 1, 1]])
    np.testing.assert_array_equal(dataset.test.targets, [1, 0])
    assert dataset.train.inputs["tokens"].dtype == np.int32
    assert dataset.train.inputs["mask"].dtype == bool
    assert dataset.train.targets.dtype == np.int32
    assert dataset.classes == ("no", "yes")


def test_test_words_never_enter_the_vocabulary():
    dataset = tokenize(CORPUS)
    assert "new" not in dataset.vocabulary
    moved = tokenize(replace(CORPUS, train=TEST, test=TRAIN))  # the control: as training words they do
    assert "new" in moved.vocabulary
    corpus = sentence_polarity()
    full = tokenize(corpus, vocab_size=100_000)
    seen = {word for words in corpus.train.words for word in words}
    assert set(full.vocabulary[2:]) == seen
    for part, data in ((corpus.validation, full.validation), (corpus.test, full.test)):
        unseen = [word not in seen for words in part.words for word in words]
        tokens = data.inputs["tokens"][data.inputs["mask"]]
        assert sum(unseen) > 500
        np.testing.assert_array_equal(tokens == 1, unseen)
    assert not (full.train.inputs["tokens"] == 1).any()


def test_tokens_give_the_words_back():
    corpus = ud_ewt()
    dataset = tokenize(corpus, vocab_size=100_000, max_length=200)
    for row in (0, 7, 12543):
        inputs, labels = dataset.train.take(row).inputs, dataset.train.targets[row]
        words = tuple(dataset.vocabulary[token] for token in inputs["tokens"][inputs["mask"]])
        assert words == corpus.train.words[row]
        assert tuple(labels[inputs["mask"]]) == corpus.train.labels[row]
        assert not labels[~inputs["mask"]].any()
        assert not inputs["tokens"][~inputs["mask"]].any()
    assert dataset.train.inputs["mask"].sum() == 204577


def test_labels_per_word_are_cut_and_padded_with_the_words():
    dataset = tokenize(tagged((("a",), ("a", "b", "a")), ((2,), (1, 2, 1))), max_length=2)
    np.testing.assert_array_equal(dataset.train.targets, [[2, 0], [1, 2]])
    assert dataset.train.targets.dtype == np.int32


def test_encode_agrees_with_tokenize_and_takes_new_sentences():
    dataset = tokenize(CORPUS, max_length=4)
    again = encode(CORPUS.test.words, dataset.vocabulary, max_length=4)
    np.testing.assert_array_equal(again["tokens"], dataset.test.inputs["tokens"])
    inputs = encode([["c", "never", "<pad>", "<unk>"]], dataset.vocabulary, max_length=5)
    np.testing.assert_array_equal(inputs["tokens"], [[4, 1, 1, 1, 0]])
    np.testing.assert_array_equal(inputs["mask"], [[1, 1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"vocab_size": 2}, ValueError, "vocab_size: expected at least 3, got 2"),
        ({"vocab_size": 5.0}, TypeError, "vocab_size: expected an integer, got 5.0"),
        ({"max_length": 0}, ValueError, "max_length: expected at least 1, got 0"),
        ({"max_length": True}, TypeError, "max_length: expected an integer, got True"),
    ],
)
def test_tokenize_refuses_bad_sizes(settings, error, message):
    with pytest.raises(error, match=message):
        tokenize(CORPUS, **settings)


def test_tokenize_refuses_what_is_no_corpus():
    with pytest.raises(TypeError, match="expected a Corpus"):
        tokenize(TRAIN)


@pytest.mark.parametrize(
    ("sentences", "error", "message"),
    [
        ("a whole string", TypeError, "expected a sequence of sequences of words, got str"),
        (["a sentence"], TypeError, "sentence 0: .* split it into words first"),
        ([["a"], []], ValueError, "sentence 1: has no words"),
        ([["a", 3]], TypeError, "sentence 0: expected words as strings, got 3"),
        ([], ValueError, "got none"),
    ],
)
def test_encode_refuses_bad_sentences(sentences, error, message):
    with pytest.raises(error, match=message):
        encode(sentences, ("<pad>", "<unk>", "a"), max_length=4)


def test_encode_refuses_a_vocabulary_without_the_two_special_ids():
    with pytest.raises(ValueError, match="begin with <pad>, <unk>"):
        encode([["a"]], ("a", "b"), max_length=4)

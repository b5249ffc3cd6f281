import pytest

from ptx.datasets import Corpus, Sentences

WORDS = (("a", "b"), ("c",))


def test_lists_become_tuples():
    sentences = Sentences(words=[["a", "b"], ["c"]], labels=[[0, 1], [1]])
    assert sentences.words == WORDS
    assert sentences.labels == ((0, 1), (1,))
    assert sentences.per_word
    assert not Sentences(words=WORDS, labels=(0, 1)).per_word


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ((0,), ValueError, "1 entries for 2 sentences"),
        ((0, 1.5), TypeError, "sentence 1 has 1.5"),
        ((0, None), TypeError, "sentence 1 has None"),
        ((0, (1,)), TypeError, r"sentence 1 has \(1,\)"),
        (((0, 1), 1), TypeError, "sentence 1 has 1"),
        (((0, 1), (1, 1)), ValueError, "sentence 1 has 2 labels for 1 words"),
        (((0, "x"), (1,)), TypeError, "sentence 0"),
    ],
)
def test_sentences_refuse_labels_that_do_not_fit(labels, error, message):
    with pytest.raises(error, match=message):
        Sentences(words=WORDS, labels=labels)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ((), ValueError, "got none"),
        ((("a",), ()), ValueError, "sentence 1: has no words"),
        (("ab", "c"), TypeError, "split"),
    ],
)
def test_sentences_refuse_words_that_are_none(words, error, message):
    with pytest.raises(error, match=message):
        Sentences(words=words, labels=(0, 1)[: len(words)])


def test_sentences_refuse_a_wrong_number_of_documents():
    with pytest.raises(ValueError, match="documents: 1 entries for 2 sentences"):
        Sentences(words=WORDS, labels=(0, 1), documents=("one",))


@pytest.mark.parametrize("bad", [2, -1])
def test_corpus_refuses_a_label_out_of_range(bad):
    good, wrong = Sentences(words=WORDS, labels=(0, 1)), Sentences(words=WORDS, labels=(0, bad))
    with pytest.raises(ValueError, match=f"test: sentence 1 has label {bad}; expected .* 0 to 1"):
        Corpus(good, good, wrong, classes=("x", "y"))


def test_corpus_refuses_parts_of_two_kinds():
    sentence, word = Sentences(words=WORDS, labels=(0, 1)), Sentences(words=WORDS, labels=((0, 1), (0,)))
    with pytest.raises(ValueError, match="label per word"):
        Corpus(sentence, sentence, word, classes=("x", "y"))

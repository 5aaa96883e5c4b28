"""A byte-level tokenizer of Qwen's kind, with few tokens."""

import json


def alphabet():
    """GPT-2's: a character for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters, spare = {}, 256
    for byte in range(256):
        characters[byte] = chr(byte) if byte in printable else chr(spare)
        spare += byte not in printable
    return characters


def tokenizer(words=()):
    """A byte-level tokenizer.json whose merges make `words`."""
    letters = alphabet()
    vocab = {letters[byte]: byte for byte in range(256)}
    merges = []
    for word in words:
        word = "".join(letters[byte] for byte in word.encode())
        for length in range(2, len(word) + 1):
            if word[:length] not in vocab:
                vocab[word[:length]] = len(vocab)
                merges.append([word[: length - 1], word[length - 1]])
    end = {"id": len(vocab), "content": "<|endoftext|>", "special": True, "normalized": False}
    pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    splits = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
              {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]
    return {
        "added_tokens": [end],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splits},
        "decoder": {"type": "ByteLevel"},
        "post_processor": None,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def write_tokenizer(folder, words=()):
    """With 257 ids and one for each merge that `words` need."""
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(words)))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))

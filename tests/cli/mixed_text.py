"""Text of every kind that a tokenizer may meet, in files of a few kilobytes: what is installed of manual pages (in
every language) and of documentation, this repository's sources, and what is made here: emoji, scripts of the world,
white space, numbers, apostrophes, special tokens, broken UTF-8. The same for the same machine and size."""

import gzip
import random
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<bos>", "<eos>", "<s>", "</s>", "<think>", "<tool_call>", "<|begin_of_text|>",
           "<|start_header_id|>", "<|return|>", "<\uff5cUser\uff5c>", "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<unused7>", "[multimodal]",
           "<start_of_turn>", "<0x41>", "\u2581", "\u2581\u2581", "<|reserved_special_token_3|>"]
CONTRACTIONS = ["I'm", "we'LL", "DON'T", "it's", "'tis", "they'Ve", "o'clock", "y'all'd've", "'S", "rock'n'roll", "'\u017f", "\u2019s"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n\n", " \n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\ufeff",
          "\v", "\f", "\u2003", "    \n\t", "\u1680", "\u180e", "\r"]
RANGES = [(0x21, 0x7E), (0xA1, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F),
          (0x591, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F), (0xB80, 0xBFF), (0xE01, 0xE5B), (0x10A0, 0x10FF),
          (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2010, 0x2046), (0x2070, 0x218B), (0x2190, 0x23FF), (0x2500, 0x27BF),
          (0x3041, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0xFB00, 0xFB4F), (0xFF01, 0xFFEF),
          (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x1F680, 0x1F6C5), (0x1F900, 0x1F9FF), (0x20000, 0x20FFF)]
EMOJI = ["\U0001f642", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea",
         "\U0001f3f4\u200d\u2620\ufe0f", "1\ufe0f\u20e3", "\U0001fae8", "\U0001f9d1\u200d\U0001f4bb"]


def word(draw):
    low, high = draw.choice(RANGES)
    return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 8)))


def made(draw, size):
    """Text of `size` characters or a little more."""
    parts, length = [], 0
    while length < size:
        kind = draw.random()
        if kind < 0.35:
            part = word(draw)
        elif kind < 0.5:
            part = draw.choice(CONTRACTIONS)
        elif kind < 0.6:
            part = draw.choice(EMOJI) * draw.randint(1, 3)
        elif kind < 0.7:
            part = "".join(draw.choices("0123456789.,", k=draw.randint(1, 12)))
        elif kind < 0.74:
            part = draw.choice(SPECIAL)
        elif kind < 0.8:
            part = draw.choice("=-_*#/!?.") * draw.randint(1, 40)
        else:
            part = draw.choice(["The", "quick", "Fox", "camelCase", "HTTPServer", "e\u0301te\u0301", "na\u00efve", "\u4e2d\u6587", "int main(){"])
        parts.append(part)
        parts.append(draw.choice(SPACES) if draw.random() < 0.7 else "")
        length += len(part)
    return "".join(parts)


def broken(draw, content):
    """Bytes changed, dropped or put in, so that it is no UTF-8."""
    content = bytearray(content)
    for _ in range(max(1, len(content) // 200)):
        at = draw.randrange(len(content))
        if draw.random() < 0.5:
            content[at] = draw.randrange(256)
        elif draw.random() < 0.5:
            del content[at]
        else:
            content[at:at] = bytes(draw.choices(range(128, 256), k=draw.randint(1, 4)))
        if not content:
            break
    return bytes(content)


def installed():
    """Files of this machine, by kind; what a kind has is taken in turns."""
    manuals = {}
    for page in Path("/usr/share/man").glob("*/man*/*"):
        manuals.setdefault(page.parts[4], []).append(page)
    kinds = list(manuals.values())
    kinds.append(list(Path("/usr/share/man").glob("man*/*")))
    kinds.append(list(Path("/usr/share/doc").glob("*/*")))
    kinds.append(list(Path("/usr/share/perl").rglob("*.pod")))
    kinds.append([p for ending in ("cpp", "h", "py", "md") for p in REPOSITORY.rglob(f"*.{ending}")
                  if "build" not in p.parts])
    return [sorted(p for p in kind if not p.is_symlink()) for kind in kinds]


def read(path):
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError):
        return b""


def write(folder, size, seed=1, piece=8192):
    """Writes files of together `size` bytes, or a little more, into `folder`, and returns their paths."""
    draw = random.Random(seed)
    kinds = [kind for kind in installed() if kind]
    for kind in kinds:
        draw.shuffle(kind)
    folder.mkdir(parents=True, exist_ok=True)
    files, total = [], 0

    def add(content):
        nonlocal total
        if content:
            files.append(folder / f"{len(files):05}.txt")
            files[-1].write_bytes(content)
            total += len(content)

    while total < size:
        for kind in kinds:
            content = read(kind.pop()) if kind else b""
            if b"\0" in content:
                continue
            # From anywhere, and perhaps from inside a character.
            begin = draw.randrange(max(1, len(content) - piece))
            part = content[begin : begin + piece]
            add(broken(draw, part) if part and draw.random() < 0.05 else part)
        text = made(draw, piece).encode()
        add(text)
        add(broken(draw, made(draw, piece // 8).encode()))
    return files

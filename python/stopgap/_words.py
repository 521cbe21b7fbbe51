"""Arguments of Python, checked and made into the words of a command line."""

import os
import warnings


class Note(UserWarning):
    """What the command would tell on standard error beside its result."""


def path(name, value):
    """Returns a path as text. Raises TypeError where `value` is none, ValueError where it cannot be one."""
    if isinstance(value, bytes) or not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path (str or os.PathLike), not {_type(value)}")
    text = os.fspath(value)
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a path of str, not of {_type(text)}")
    if not text or "\0" in text:
        raise ValueError(f"{name}: {text!r} is no path")
    return text


def paths(name, value):
    """Returns one path or a sequence of them as a list of texts, at least one."""
    if isinstance(value, (str, os.PathLike)):
        return [path(name, value)]
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"{name} must be a path or a list of paths, not {_type(value)}")
    if not value:
        raise ValueError(f"{name}: the list is empty")
    return [path(f"{name}[{at}]", one) for at, one in enumerate(value)]


def integer(name, value, least=0, most=2**64 - 1):
    """Returns a whole number as text."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {_type(value)}")
    number = value.__index__()
    if not least <= number <= most:
        raise ValueError(f"{name} must be {least} to {most}, not {number}")
    return str(number)


def share(name, value):
    """Returns a number from 0 to 1 as text."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a float, not {_type(value)}")
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must be 0 to 1, not {value}")
    return repr(number)


def text(name, value):
    """Returns a text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {_type(value)}")
    if not value or "\0" in value:
        raise ValueError(f"{name}: {value!r} is no word")
    return value


def listed(of, name, value):
    """Returns one value or a sequence of them, each made by `of`, joined by commas."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values:
        raise ValueError(f"{name}: the list is empty; leave it out for the usual ones")
    made = [of(f"{name}[{at}]" if values is value else name, one) for at, one in enumerate(values)]
    for one in made:
        if "," in one:
            raise ValueError(f"{name}: {one!r} has a comma; give a list")
    return ",".join(made)


def flag(words, option, of, name, value):
    """Adds `option` with `value` to `words`, unless it is None. One word, so that a value may begin with a dash."""
    if value is not None:
        words.append(f"{option}={of(name, value)}")


def operands(words, values):
    """Adds paths or names. Where one begins with a dash, what follows is no flag."""
    if any(value.startswith("-") for value in values):
        words.append("--")
    words.extend(values)


def call(function, words):
    """Calls the extension with the words of a command line; its notes become warnings."""
    result, notes = function(["stopgap", *words])
    for note in notes:
        warnings.warn(note, Note, stacklevel=4)
    return result


def _type(value):
    return type(value).__name__

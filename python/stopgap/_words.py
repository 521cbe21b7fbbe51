"""Arguments of Python, checked and made into the words of a command line."""

import os
import warnings

from ._stopgap import Error


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


class Words(list):
    """Words of a command line after the program's name, and of which argument each flag is."""

    def __init__(self, *words):
        super().__init__(words)
        self.arguments = {}

    def flag(self, option, of, name, value):
        """Adds `option` with `value`, unless it is None. One word, so that a value may begin with a dash."""
        if value is not None:
            self.append(f"{option}={of(name, value)}")
            self.arguments[option] = name

    def operands(self, values):
        """Adds paths or names. Where one begins with a dash, what follows is no flag."""
        if any(value.startswith("-") for value in values):
            self.append("--")
        self.extend(values)

    def argument(self, message):
        """Returns the name of the argument that an error of the command is about, or None."""
        for option, name in self.arguments.items():
            # As clap has it: '--seed <N>'; as the command itself: --seed 0: ...
            if f"'{option} " in message or message.startswith(f"{option} "):
                return name
        return "policies" if "--policy" in self.arguments and message.startswith("unknown policy ") else None


def call(function, words):
    """Calls the extension with the words of a command line; its notes become warnings."""
    try:
        result, notes = function(["stopgap", *words])
    except Error as error:
        name = words.argument(str(error))
        if name is None:
            raise
        raise Error(f"{name}: {error}") from None
    for note in notes:
        warnings.warn(note, Note, stacklevel=4)
    return result


def _type(value):
    return type(value).__name__

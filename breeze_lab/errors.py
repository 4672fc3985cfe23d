"""The one error that users meet: its message names the cause and the cure."""


class BreezeLabError(ValueError):
    """Bad input, a broken file or a missing capability.

    The message is one or two plain sentences, cause first, then the cure. The command line prints it
    without a traceback and exits with code 2.
    """

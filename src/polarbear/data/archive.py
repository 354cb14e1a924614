"""Files of arrays that cannot be read: what is wrong, in words of our own."""


def what_is_wrong(error: Exception) -> str:
    """Say why NumPy cannot read a ``.npz`` file, without its advice to load it unsafely.

    >>> what_is_wrong(EOFError("No data left in file"))
    'No data left in file'
    >>> what_is_wrong(ValueError("If you trust the file, use the `allow_pickle=` argument"))
    'it is no .npz file, or has Python objects in it, which are not loaded'
    """
    # NumPy takes any file it does not know for a pickle.
    if "pickle" in str(error):
        return "it is no .npz file, or has Python objects in it, which are not loaded"
    return str(error)

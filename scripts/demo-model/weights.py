"""safetensors in plain numpy: written by the export, read by the evaluation and by the check."""
import json
import struct

import numpy as np

DTYPES = {"F16": np.float16, "F32": np.float32}


def write(path, tensors, metadata):
    """Writes name -> float16 array, names sorted, header padded to a multiple of 8 bytes."""
    head, at = {"__metadata__": metadata}, 0
    for name in sorted(tensors):
        t = tensors[name]
        head[name] = {"dtype": "F16", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    raw = json.dumps(head, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        for name in sorted(tensors):
            f.write(np.ascontiguousarray(tensors[name]).astype("<f2").tobytes())


def read(path):
    """Name -> float32 array."""
    with open(path, "rb") as f:
        raw = f.read()
    n, = struct.unpack("<Q", raw[:8])
    head = json.loads(raw[8:8 + n])
    head.pop("__metadata__", None)
    out = {}
    for name, t in head.items():
        a, b = t["data_offsets"]
        out[name] = np.frombuffer(raw[8 + n + a:8 + n + b], DTYPES[t["dtype"]]).reshape(t["shape"]).astype(np.float32)
    return out

"""A run on disk: a manifest, draws in zarr v3 as ArviZ reads them, checkpoints of the whole state, an event log.

    runs/x/
      manifest.json            what counts; written last, with its own checksum; before it manifest.previous.json
      draws.zarr/              groups posterior, unconstrained_posterior, sample_stats, and history by step
      checkpoints/N.safetensors  the state after save N, and draws that fill no chunk yet; the last two stay
      events.jsonl             what happened, one JSON line each
      data.safetensors         inputs and targets, so that a run explains itself
      lock                     host and process that write

A save writes the checkpoint, then the manifest, each as temporary file, fsync, `os.replace`, fsync of the directory.
So at any instant one manifest describes a whole state; after a crash the run goes on from it, and what it draws again
is what was drawn before, bit for bit.
"""

"""Where kernels come from: processes that are started, forked, watched and ended."""

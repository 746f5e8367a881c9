"""From the sockets of a kernel to what a cell gave."""

"""The checkpoint that a daemon saves for the next daemon at its address: arrays, and manifests that name them.

A daemon's directory in the cache, which only one daemon uses at a time, contains

    arrays/     a file for each array: its bytes, and nothing else
    manifests/  a file for each session, and for each name that holds a tree

Each array is one file, however many sessions and names use it, and each file is one array. Array identity therefore
survives a restart: one array stays one, and two stay two. For this reason, files have random names. If files were named
by a digest of their content, two arrays of zeros would become one, although a program may donate one of them and
continue to use the other. The manifests hold a checksum of each file, which every read verifies. (A cryptographic
digest would also cost more: for 1 GiB, crc32 takes 0.3 s of CPU time, sha256 0.7 s and blake2b 1.7 s, where writing
takes 0.5 s.)

Manifests own the files. A file lives as long as a manifest names it, and is removed with the last one. A manifest is
removed once its arrays are in memory (the client reconnected, or a client requested the name), or once they are useless
(the client died, or the name was removed or replaced). An unused manifest stays for the next daemon.

Arrays are written before the manifests that name them, and removed after them. A crash between any two steps can
therefore only leave files that no manifest names, which the next daemon removes.
"""

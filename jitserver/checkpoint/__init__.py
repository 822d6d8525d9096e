"""What a daemon leaves on the disk for the next one at its address: arrays, and manifests that name them.

A daemon's folder in the cache, which only one daemon uses at a time, contains

    arrays/     a file for each array: its bytes, and nothing else
    manifests/  a file for each session, and for each name that holds a tree

An array is one file, however many sessions and names need it, and a file is one array. So what was one array before a
restart is one array after it, and what were two arrays are two. This is why files have random names. Named by a digest
of their content, two arrays of zeros would become one, although a program may donate one of them and keep using the
other. The manifests hold a checksum of each file, which every read verifies. (A digest that could name files also costs
more: for 1 GiB, crc32 takes 0.3 s of CPU time, sha256 0.7 s and blake2b 1.7 s, where writing takes 0.5 s.)

Manifests own the files. A file lives as long as a manifest names it, and is removed with the last one. A manifest is
removed once its arrays are in memory (the client came back, or a client asked for the name), or once they are of no use
(the client died, or the name was forgotten or replaced). A manifest that was not needed stays as it is for the next
daemon.

Arrays are written before the manifests that name them, and removed after them. So a crash between any two steps leaves
at most files that no manifest names. Opening the folder removes those.
"""

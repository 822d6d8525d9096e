"""What a daemon leaves on the disk for the next one at its address: arrays, and manifests that name them.

A daemon's folder in the cache, which only one daemon uses at a time, holds

    arrays/    a file for each array: its bytes, and nothing else
    sessions/  a manifest for each session: what its client may call and look at
    names/     a manifest for each name that holds a tree

An array is one file, whoever needs it, and a file is one array: what was one array before a restart is one afterwards,
also for a session and a name that share it. So a file is not named by a digest of its content. Two arrays of zeros are
two arrays, as a program may donate one of them and go on with the other. What was written is verified by a checksum,
which stands in the manifest. (A digest that could name files costs more: for 1 GiB, crc32 takes 0.3 s of CPU time,
sha256 0.7 s, blake2b 1.7 s, and writing 0.5 s.)

Manifests own the files. A file lives as long as a manifest names it, and is removed with the last one. A manifest is
removed when all that it names is in memory (its client came back, or somebody asked for the name), or when nobody will
ask (the client has died, the name was forgotten or holds something else). What nobody came for stays as it is for the
daemon after the next.

Arrays are written before the manifests that name them, and removed after them. So a crash between any two steps leaves
files that no manifest names, and whoever opens the folder removes those first.
"""

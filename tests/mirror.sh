#!/bin/sh
# Prints the mirror that this machine's own Debian packages come from; nothing where none is found.
cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
    sed -n -e 's/^URIs: *\([^ ]*\/debian\)\/* *$/\1/p' \
        -e 's/^deb  *\(\[[^]]*\]  *\)*\([^ ]*\/debian\)\/*  *.*/\2/p' | head -n 1

#!/bin/sh
# Compiles the client without warnings, checks its documentation, and runs the tests in Emacs against a live abxd and
# engine, in a home of their own.
#
# ABX_TEST_ABX: the program abx, with abxd beside it [default: abx in PATH]. ABX_TEST_IMAGE: an image with a shell
# [default: debian:stable-slim]. EMACS, EMACSCLIENT: the editor [default: emacs, emacsclient].
# ABX_TEST_VTERM: the directory of a vterm with its module, which then shows the terminals instead of term [default: none].
set -eu
cd "$(dirname "$0")/.."
: "${ABX_TEST_ABX:=$(command -v abx)}" "${ABX_TEST_IMAGE:=debian:stable-slim}"
: "${EMACS:=emacs}" "${EMACSCLIENT:=emacsclient}"
dir=$(mktemp -d "${TMPDIR:-/tmp}/abx-emacs-XXXXXX")
export ABX_TEST_ABX ABX_TEST_IMAGE EMACS EMACSCLIENT ABX_TEST_DIR="$dir" ABX_TEST_SOURCE="$PWD"
export ABX_HOME="${ABX_TEST_HOME:-$dir/home}"
unset ABX_SOCKET
code=0
# A copy, so that nothing compiled is left beside the source.
mkdir "$dir/lisp"
cp ./*.el "$dir/lisp"
timeout --kill-after=5 60 "$EMACS" --batch -Q -L "$dir/lisp" --eval '(setq byte-compile-error-on-warn t)' \
    -f batch-byte-compile "$dir"/lisp/*.el || code=$?
said=$(timeout --kill-after=5 60 "$EMACS" --batch -Q -l checkdoc \
    --eval '(setq vc-handled-backends nil)' --eval '(dolist (file command-line-args-left) (checkdoc-file file))' ./*.el 2>&1) || code=$?
if [ -n "$said" ]; then
    printf '%s\n' "$said"
    code=1
fi
if [ "$code" = 0 ]; then
    # A batch Emacs dies of writing to a daemon that has just ended; one with a user gets an error.
    trap '' PIPE
    timeout --kill-after=5 240 "$EMACS" --batch -Q -L "$dir/lisp" -l tests/abx-tests.el \
        --eval "(ert-run-tests-batch-and-exit (or (getenv \"ABX_TEST_ONLY\") t))" || code=$?
fi
# What the tests made goes, also when they failed.
names=$("$ABX_TEST_ABX" --no-autostart -q ls 2>/dev/null || :)
printf '%s\n' "$names" | while IFS= read -r name; do
    [ -z "$name" ] || "$ABX_TEST_ABX" delete -y "$name" >/dev/null 2>&1 || :
done
"$ABX_TEST_ABX" daemon stop >/dev/null 2>&1 || :
"$ABX_TEST_ABX" --home "$dir/away" daemon stop >/dev/null 2>&1 || :
rm -rf "$dir"
exit "$code"

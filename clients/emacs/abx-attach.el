;;; abx-attach.el --- Terminals of sessions of abx  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Terminals of sessions in terminal buffers: `abx attach' does the work, so
;; that keys, sizes, reconnecting and detaching are those of the command line.

;;; Code:

(require 'cl-lib)
(require 'term)
(require 'abx-client)

(defvar vterm-shell)
(defvar vterm-environment)
(defvar vterm-kill-buffer-on-exit)
(declare-function vterm-mode "ext:vterm")

(defcustom abx-terminal-emulator 'auto
  "What shows terminals: `vterm' if it is installed, else `term'.
A function gets the command line, a list, and runs it in the current
buffer, which is new and in the selected window."
  :type '(choice (const auto) (const term) (const vterm) function)
  :group 'abx)

(defcustom abx-detach-keys nil
  "Keys that leave a terminal, as for `abx attach --detach-keys'.
When nil, those of abx: \\`C-]' and then d."
  :type '(choice (const :tag "As abx itself" nil) string)
  :group 'abx)

(defcustom abx-attach-scrollback 1000
  "Lines of what scrolled away that are shown above the screen."
  :type 'natnum
  :group 'abx)

(defcustom abx-attach-close t
  "Whether the buffer goes when its terminal was left or ended well."
  :type 'boolean
  :group 'abx)

(defvar-local abx-attach-session nil "Name of the session of this buffer.")
(defvar-local abx-attach-terminal nil "Name of the terminal of this buffer.")
(defvar-local abx-attach--key nil "Session's id and terminal of this buffer.")

(defun abx-attach-command (name options)
  "Command line that attaches to the session NAME with OPTIONS, a plist."
  (let ((keys (or (plist-get options :detach-keys) abx-detach-keys)))
    (apply #'abx-client-argv
           (append
            (list "attach" "--terminal" (or (plist-get options :terminal) "main"))
            (and (plist-get options :agent) '("--agent"))
            (and (plist-get options :fresh) '("--fresh"))
            (and (plist-get options :read-only) '("--read-only"))
            (and keys (list "--detach-keys" keys))
            (and (> abx-attach-scrollback 0)
                 (list "--scrollback" (number-to-string abx-attach-scrollback)))
            (list name)
            (when-let ((command (plist-get options :command)))
              (cons "--" command))))))

(defun abx-attach--find (key)
  "The buffer with a live terminal of KEY."
  (seq-find (lambda (buffer)
              (and (equal (buffer-local-value 'abx-attach--key buffer) key)
                   (process-live-p (get-buffer-process buffer))))
            (buffer-list)))

(defun abx-attach--ended (buffer code)
  "Take note that the terminal of BUFFER ended with CODE."
  (when (and (buffer-live-p buffer) (eql code 0) abx-attach-close)
    (let ((windows (get-buffer-window-list buffer nil t)))
      (dolist (window windows)
        (quit-restore-window window))
      (kill-buffer buffer))))

(defun abx-attach--watch ()
  "Take note of the end of this buffer's terminal when it comes."
  (let ((buffer (current-buffer))
        (process (get-buffer-process (current-buffer))))
    (set-process-query-on-exit-flag process nil)
    (add-function :after (process-sentinel process)
                  (lambda (process _)
                    (unless (process-live-p process)
                      (run-at-time 0 nil #'abx-attach--ended buffer
                                   (process-exit-status process)))))))

(defun abx-attach--term (command)
  "Run COMMAND in this buffer, with term."
  (term-mode)
  (setq-local term-buffer-maximum-size 0)
  ;; The arguments stand behind a script of term's own; no shell reads them.
  (term-exec (current-buffer) (buffer-name) (car command) nil (cdr command))
  (term-char-mode))

(defun abx-attach--vterm-shell (command)
  "COMMAND as what `vterm-shell' and `vterm-environment' should be.
The command goes through a shell there, so that the words themselves
stay out of it: they are in the environment."
  (let ((number 0) names values)
    (dolist (word command)
      (let ((name (format "ABX_ATTACH_%d" (cl-incf number))))
        (push (format "\"$%s\"" name) names)
        (push (format "%s=%s" name word) values)))
    (cons (string-join (nreverse names) " ") (nreverse values))))

(defun abx-attach--vterm (command)
  "Run COMMAND in this buffer, with vterm."
  (require 'vterm)
  (let* ((shell (abx-attach--vterm-shell command))
         (vterm-shell (car shell))
         (vterm-environment (append (cdr shell) vterm-environment))
         (vterm-kill-buffer-on-exit nil))
    (vterm-mode))
  (setq-local vterm-kill-buffer-on-exit nil))

(defun abx-attach--emulator ()
  "The function that `abx-terminal-emulator' stands for."
  (pcase abx-terminal-emulator
    ('term #'abx-attach--term)
    ('vterm #'abx-attach--vterm)
    ('auto (if (and (fboundp 'vterm)
                    ;; Without its module it would ask to compile it.
                    (or (featurep 'vterm)
                        (locate-file "vterm-module" load-path (list module-file-suffix))))
               #'abx-attach--vterm
             #'abx-attach--term))
    (function function)))

(defun abx-attach-open (name options callback)
  "Open a terminal of the session NAME, resuming the session if need be.
OPTIONS is a plist: :terminal, :command (a list), :agent, :fresh,
:read-only, :detach-keys.  CALLBACK gets (error buffer)."
  (if-let ((missing (abx-client-no-program)))
      (funcall callback missing nil)
    (abx-request
     "session.connect" (list :name name)
     (lambda (err session)
       (if err
           (funcall callback err nil)
         ;; A window that opens is no business of a process filter.
         (run-at-time 0 nil #'abx-client--call
                      (lambda ()
                        (funcall callback nil (abx-attach--show session options)))))))))

(defun abx-attach--show (session options)
  "Show the terminal of SESSION that OPTIONS names, and give its buffer."
  (let* ((terminal (or (plist-get options :terminal) "main"))
         (key (cons (plist-get session :id) terminal))
         (name (plist-get session :name))
         (found (abx-attach--find key)))
    (pop-to-buffer
     (or found (generate-new-buffer
                (format "*abx %s%s*" name (if (equal terminal "main") "" (concat "/" terminal))))))
    (unless found
      ;; In its window already: the terminal takes its size from that.
      (let ((default-directory (expand-file-name "~/")))
        (funcall (abx-attach--emulator) (abx-attach-command name options)))
      (setq abx-attach-session name
            abx-attach-terminal terminal
            abx-attach--key key)
      (abx-attach--watch))
    (current-buffer)))

(defun abx-detach ()
  "Leave the terminal of this buffer; its programs go on."
  (interactive)
  (unless abx-attach--key
    (user-error "This buffer is no terminal of a session"))
  (let ((buffer (current-buffer))
        (process (get-buffer-process (current-buffer))))
    (when (process-live-p process)
      (set-process-sentinel process #'ignore)
      (delete-process process))
    (abx-attach--ended buffer 0)))

(provide 'abx-attach)
;;; abx-attach.el ends here

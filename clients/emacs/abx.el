;;; abx.el --- Sandboxes of abx: list, attach, save, fork  -*- lexical-binding: t; -*-

;; Author: The abx authors
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: tools, processes, terminals
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Sessions of abx (named, persistent sandboxes for coding agents) in Emacs.
;;
;; `M-x abx' shows the sessions in a list that follows what happens, whoever
;; does it.  `M-x abx-start' makes one, `M-x abx-attach' opens a terminal in
;; one; leave it with `C-]' and d, and what runs in it goes on.  The daemon is
;; started by the first command that needs it.  `abx-mode-line-mode' says in
;; the mode line which agent waits for you.  `M-x abx-check' says what is wrong
;; when something is.
;;
;; Settings: `M-x customize-group RET abx RET'.

;;; Code:

(require 'cl-lib)
(require 'abx-client)
(require 'abx-attach)
(require 'abx-list)

(defcustom abx-start-parameters nil
  "What each new session gets: fields of the method session.start.
A plist such as (:image \"debian:stable-slim\" :agent \"codex\")."
  :type 'plist
  :group 'abx)

(defcustom abx-start-workspace nil
  "Whether a new session works on the current directory.
When nil, `abx-start' with a prefix argument asks for one."
  :type 'boolean
  :group 'abx)

(defcustom abx-notify-attention t
  "Whether a message says that an agent waits for its user, or is done."
  :type 'boolean
  :group 'abx)

(defvar abx-read-history nil
  "Names of sessions that were read.")

(defconst abx--completion-limit 0.5
  "Seconds that reading a name may wait for the first list.")

;;; Reading

(defun abx--names ()
  "Names of the sessions; waits a moment for the first list."
  (unless abx-client--loaded
    (let (done)
      (abx-client-look (lambda (_) (setq done t)))
      (with-timeout (abx--completion-limit)
        (while (not done)
          (accept-process-output nil 0.01)))))
  (mapcar (lambda (session) (plist-get session :name)) (abx-sessions)))

(defun abx--annotation (name)
  "State and agent of the session NAME, for completion."
  (when-let ((session (abx-session name)))
    (format "  %s  %s  %s" (abx-list--status session) (plist-get session :agent)
            (abx-list--attention session))))

(defun abx-read-session (prompt)
  "Read the name of a session with PROMPT, completing."
  (let* ((names (abx--names))
         (default (or (abx-list-current) abx-attach-session)))
    (completing-read
     (format-prompt prompt default)
     (lambda (text predicate action)
       (if (eq action 'metadata)
           '(metadata (category . abx-session) (annotation-function . abx--annotation)
                      (display-sort-function . identity))
         (complete-with-action action names text predicate)))
     nil nil nil 'abx-read-history default)))

(defun abx--target (prompt)
  "The session at point in the list, or one that is read with PROMPT."
  (list (or (abx-list-current) (abx-read-session prompt))))

(defun abx--read-new (prompt &optional initial)
  "Read a new name with PROMPT, beginning with INITIAL."
  (let ((name (string-trim (read-string prompt initial))))
    (when (string-empty-p name) (user-error "A name is needed"))
    name))

(defun abx--finish (format &rest arguments)
  "A callback to show an error, else FORMAT with ARGUMENTS.
A function among ARGUMENTS is called with the result."
  (lambda (err result)
    (message "%s"
             (if err
                 (abx-client-error-text err)
               (apply #'format format
                      (mapcar (lambda (each) (if (functionp each) (funcall each result) each))
                              arguments))))))

;;; Commands

;;;###autoload
(defun abx ()
  "Show the sessions of abx."
  (interactive)
  (abx-list-open))

(defun abx-workspace (text)
  "The parameter for a workspace DIR[:TARGET][:ro], TEXT."
  (let* ((parts (split-string text ":"))
         (read-only (and (cdr parts) (equal (car (last parts)) "ro")))
         (parts (if read-only (butlast parts) parts)))
    (list :source (directory-file-name (expand-file-name (car parts)))
          :target (or (cadr parts) "")
          :read_only (if read-only t :json-false))))

;;;###autoload
(defun abx-start (name &optional parameters callback)
  "Start a session called NAME.
With a prefix argument, ask for the directory to work on, the agent and
the image.  From Lisp, PARAMETERS are fields of the method session.start,
of which :workspace may be a text DIR[:TARGET][:ro], and CALLBACK gets
\(error session)."
  (interactive
   (list (abx--read-new "New session: ")
         (when current-prefix-arg
           (cl-flet ((ask (prompt) (let ((text (read-string prompt)))
                                     (and (not (string-empty-p text)) text))))
             (list :workspace (read-directory-name "Directory to work on: ")
                   :agent (ask "Agent (empty for the default): ")
                   :image (ask "Image (empty for the default): "))))))
  (let* ((given (abx-client--params parameters))
         (all (append (list :name name) given
                      (cl-loop for (key value) on abx-start-parameters by #'cddr
                               unless (plist-member given key) append (list key value))))
         (workspace (or (plist-get all :workspace)
                        (and abx-start-workspace default-directory))))
    (when workspace
      (setq all (plist-put all :workspace
                           (if (stringp workspace) (abx-workspace workspace) workspace))))
    (abx-client-operate "session.start" name all
                        (or callback (abx--finish "Session '%s' started" name)))))

;;;###autoload
(defun abx-attach (name &optional options callback)
  "Open a terminal of the session NAME; resume it if it does not run.
With a prefix argument, ask for the terminal's name.  From Lisp, OPTIONS
is a plist, see `abx-attach-open', and CALLBACK gets (error buffer)."
  (interactive
   (append (abx--target "Attach to session")
           (list (when current-prefix-arg
                   (list :terminal (read-string "Terminal: " "main"))))))
  (abx-attach-open name options
                   (or callback
                       (lambda (err _) (when err (message "%s" (abx-client-error-text err)))))))

;;;###autoload
(defun abx-attach-agent (name &optional fresh)
  "Open the agent of the session NAME, where it was left.
With a prefix argument, FRESH: begin a new conversation."
  (interactive (append (abx--target "Attach to the agent of session")
                       (list current-prefix-arg)))
  (abx-attach name (if fresh '(:fresh t) '(:agent t))))

;;;###autoload
(defun abx-stop (name &optional callback)
  "Stop the session NAME; its files stay.  CALLBACK gets (error session)."
  (interactive (abx--target "Stop session"))
  (abx-request "session.stop" (list :name name)
               (or callback (abx--finish "Session '%s' stopped" name))))

;;;###autoload
(defun abx-save (name &optional options callback)
  "Stop the session NAME and take a snapshot of it.
With a prefix argument, ask for the snapshot's name.  From Lisp, OPTIONS
is a plist: :snapshot, :note, :keep_running.  CALLBACK gets (error result)."
  (interactive
   (append (abx--target "Save session")
           (list (when current-prefix-arg (list :snapshot (abx--read-new "Snapshot: "))))))
  (abx-client-operate "session.save" name (append (list :name name) options)
                      (or callback
                          (abx--finish "Session '%s' saved (snapshot: %s)" name
                                       (lambda (result)
                                         (plist-get (plist-get result :snapshot) :name))))))

(defun abx--with-snapshot (name then)
  "Call THEN with a snapshot of the session NAME that the user chooses."
  (abx-request
   "snapshot.list" (list :name name)
   (lambda (err list)
     (if err
         (message "%s" (abx-client-error-text err))
       ;; A question is no business of a process filter.
       (run-at-time 0 nil
                    (lambda ()
                      (funcall then (completing-read
                                     "Snapshot: "
                                     (mapcar (lambda (each) (plist-get each :name)) list)
                                     nil t))))))))

;;;###autoload
(defun abx-resume (name &optional options callback)
  "Bring the session NAME back.
With a prefix argument, ask for the snapshot to go back to.  From Lisp,
OPTIONS is a plist: :snapshot.  CALLBACK gets (error session)."
  (interactive (append (abx--target "Resume session") (list (and current-prefix-arg 'ask))))
  (if (eq options 'ask)
      (abx--with-snapshot name (lambda (snapshot) (abx-resume name (list :snapshot snapshot))))
    (abx-client-operate "session.resume" name (append (list :name name) options)
                        (or callback (abx--finish "Session '%s' resumed" name)))))

;;;###autoload
(defun abx-fork (name new &optional options callback)
  "Make a session NEW with the files of the session NAME.
From Lisp, OPTIONS is a plist: :snapshot.  CALLBACK gets (error session)."
  (interactive
   (let ((name (car (abx--target "Fork session"))))
     (list name (abx--read-new (format "Fork '%s' to: " name) (concat name "-2")))))
  (abx-client-operate "session.fork" name (append (list :name name :new_name new) options)
                      (or callback (abx--finish "Session '%s' forked to '%s'" name new))))

;;;###autoload
(defun abx-rename (name new &optional callback)
  "Give the session NAME the name NEW.  CALLBACK gets (error session)."
  (interactive
   (let ((name (car (abx--target "Rename session"))))
     (list name (abx--read-new (format "Rename '%s' to: " name) name))))
  (abx-request "session.rename" (list :name name :new_name new)
               (or callback (abx--finish "Session '%s' is now '%s'" name new))))

(defun abx-pause-or-unpause (name &optional callback)
  "Freeze the session NAME, or thaw it.  CALLBACK gets (error session)."
  (interactive (abx--target "Pause session"))
  (let ((paused (equal (plist-get (abx-session name) :status) "paused")))
    (abx-request (if paused "session.unpause" "session.pause") (list :name name)
                 (or callback
                     (abx--finish (if paused "Session '%s' runs again" "Session '%s' paused")
                                  name)))))

(defun abx--delete-question (name snapshots keep)
  "Give the question whether to delete NAME and its SNAPSHOTS; they stay if KEEP.
SNAPSHOTS is their number, nil if it is not known.  The words are those of
the command line."
  (let ((count (pcase snapshots
                 ('nil "its snapshots")
                 (1 "1 snapshot")
                 (_ (format "%d snapshots" snapshots)))))
    (cond ((eql snapshots 0)
           (format "Delete session '%s' and its container? It has no snapshot. " name))
          (keep (format "Delete session '%s' and its container, and keep %s? " name count))
          (t (format "Delete session '%s', its container and %s? " name count)))))

;;;###autoload
(defun abx-delete (name &optional options callback)
  "Delete the session NAME, its container and its snapshots, after a question.
With a prefix argument, keep its snapshots.  From Lisp there is no
question; OPTIONS is a plist: :keep_snapshots.  CALLBACK gets (error result)."
  (interactive
   (let* ((name (car (abx--target "Delete session")))
          (snapshots (plist-get (abx-session name) :snapshots)))
     (unless (yes-or-no-p (abx--delete-question name snapshots current-prefix-arg))
       (user-error "Nothing was deleted"))
     (list name (and current-prefix-arg '(:keep_snapshots t)))))
  (abx-request "session.delete" (append (list :name name) options)
               (or callback (abx--finish "Session '%s' deleted" name))))

;;;###autoload
(defun abx-describe (name)
  "Show everything about the session NAME."
  (interactive (abx--target "Describe session"))
  (abx-request "session.get" (list :name name)
               (lambda (err session)
                 (if err
                     (message "%s" (abx-client-error-text err))
                   (run-at-time 0 nil #'abx-list-describe session)))))

;;;###autoload
(defun abx-events (&optional name)
  "Show what happens to the session NAME; with a prefix argument, everything."
  (interactive (unless current-prefix-arg (abx--target "Events of session")))
  (abx-list-events name))

;;;###autoload
(defun abx-daemon-start ()
  "Start the daemon of abx."
  (interactive)
  (abx-client-start-daemon
   (lambda (err)
     (if err
         (message "%s" (abx-client-error-text err))
       (abx-client-look (lambda (err)
                          (message "%s" (if err (abx-client-error-text err) "abxd runs"))))))))

;;; What is wrong

(defun abx--check-lines (info)
  "Lines about the daemon whose daemon.info is INFO."
  (append
   (list (format "ok     abxd %s, process %s, protocol %s, %s sessions"
                 (plist-get info :version) (plist-get info :pid) (plist-get info :protocol)
                 (plist-get info :sessions)))
   (mapcar (lambda (notice) (format "note   %s" (abx-client--clean notice)))
           (plist-get info :notices))
   (mapcar (lambda (engine)
             (if (equal (plist-get engine :health) "ok")
                 (format "ok     engine %s, %s, version %s" (plist-get engine :name)
                         (plist-get engine :address) (plist-get engine :version))
               (format "WRONG  engine %s is %s: %s\n       Hint: start Docker or Podman; abxd finds it by itself"
                       (plist-get engine :name) (plist-get engine :health)
                       (abx-client--clean (plist-get engine :problem)))))
           (plist-get info :engines))))

(defun abx--check-wrong (err)
  "Lines about ERR, which is what is wrong."
  (append (list (concat "WRONG  " (abx-client--clean (plist-get err :message))))
          (mapcar (lambda (cause) (concat "       Caused by: " (abx-client--clean cause)))
                  (plist-get err :causes))
          (list (concat "       Hint: " (abx-client--clean (or (plist-get err :hint) "run: abx doctor"))))))

(defun abx--info (callback &optional tries)
  "Ask for daemon.info; CALLBACK gets (error info).
A daemon that has just begun still looks for its engines; it is asked
again, at most TRIES times."
  (let ((tries (or tries 25)))
    (abx-request
     "daemon.info" nil
     (lambda (err info)
       (if (and info (> tries 0)
                (seq-some (lambda (engine) (equal (plist-get engine :health) "checking"))
                          (plist-get info :engines)))
           (run-at-time 0.2 nil #'abx--info callback (1- tries))
         (funcall callback err info))))))

;;;###autoload
(defun abx-check ()
  "Look at all that is needed, and say what to do about what is wrong.
Starts the daemon if none runs and `abx-autostart' is non-nil: the daemon
knows its engines."
  (interactive)
  (let* ((missing (abx-client-no-program))
         (starts (and abx-autostart (not missing)))
         (buffer (get-buffer-create "*abx check*"))
         (say (lambda (lines)
                (when (buffer-live-p buffer)
                  (with-current-buffer buffer
                    (let ((inhibit-read-only t))
                      (goto-char (point-max))
                      (dolist (line lines) (insert line "\n"))))))))
    (with-current-buffer buffer
      (special-mode)
      (let ((inhibit-read-only t)) (erase-buffer)))
    (pop-to-buffer buffer)
    (funcall say (list (format "ok     Emacs %s" emacs-version)))
    (funcall say (if missing
                     (abx--check-wrong missing)
                   (list (format "ok     program %s" (executable-find abx-program)))))
    (funcall say (list (format "       socket %s" (abx-client-socket))))
    (funcall (if starts #'abx-client-ensure #'abx-client-look)
     (lambda (err)
       (cond
        ((null err)
         (abx--info
          (lambda (err info)
            (funcall say (append (if err (abx--check-wrong err) (abx--check-lines info))
                                 '("done"))))))
        ((or starts (not (string-prefix-p "nobody answers" (plist-get err :message))))
         (funcall say (append (abx--check-wrong err) '("done"))))
        (t
         ;; Nobody was to be started: what the system said of the socket is no news.
         (funcall say (list (format "%sno abxd runs there%s" (if missing "note   " "WRONG  ")
                                    (if missing "" "; the engine was not looked at"))
                            (concat "       "
                                    (if missing "without abx none can be started"
                                      "Hint: run: abx daemon start; then M-x abx-check again"))
                            "done"))))))
    buffer))

;;; Attention

(defun abx--attention (session _before)
  "Say what the agent of SESSION wants."
  (let ((attention (plist-get session :attention))
        (note (plist-get session :attention_note)))
    ;; What a deletion, a stop or a save ends is not done: whoever asked for that knows.
    (when (and abx-notify-attention
               (or (equal attention "waiting")
                   (and (equal attention "done")
                        (not (member (plist-get session :operation) '("delete" "stop" "save"))))))
      (message "abx: %s %s%s" (plist-get session :name)
               (if (equal attention "waiting") "waits for you" "is done")
               (if note (concat ": " (abx-client--clean note)) "")))))

(add-hook 'abx-attention-functions #'abx--attention)

(defun abx-mode-line ()
  "How many sessions run and who waits, for a mode line.
Empty when there is nothing to show."
  (let* ((all (abx-sessions))
         (running (seq-count (lambda (s) (equal (plist-get s :status) "running")) all))
         (waiting (seq-filter (lambda (s) (equal (plist-get s :attention) "waiting")) all))
         (done (seq-count (lambda (s) (equal (plist-get s :attention) "done")) all)))
    (cond
     ((eq abx-client--phase 'lost) " abx:away")
     ((or (not (eq abx-client--phase 'ready)) (null all)) "")
     (t (string-replace
         "%" "%%"
         (concat
          (format " abx:%d/%d" running (length all))
          (when waiting
            (propertize (format " %s waits%s" (plist-get (car waiting) :name)
                                (if (cdr waiting) (format " +%d" (1- (length waiting))) ""))
                        'face 'abx-waiting))
          (when (> done 0) (format " %d done" done))))))))

(defvar abx-mode-line-string '(:eval (abx-mode-line))
  "What `abx-mode-line-mode' adds to the mode line.")
(put 'abx-mode-line-string 'risky-local-variable t)

(defun abx--update-mode-lines ()
  "Draw the mode lines again."
  (force-mode-line-update t))

;;;###autoload
(define-minor-mode abx-mode-line-mode
  "Say in the mode line how many sessions run, and which agent waits for you."
  :global t
  :group 'abx
  (or global-mode-string (setq global-mode-string '("")))
  (cond
   (abx-mode-line-mode
    (add-to-list 'global-mode-string 'abx-mode-line-string t)
    (add-hook 'abx-sessions-hook #'abx--update-mode-lines)
    (add-hook 'abx-state-hook #'abx--update-mode-lines)
    (abx-client-look))
   (t
    (setq global-mode-string (delq 'abx-mode-line-string global-mode-string))
    (remove-hook 'abx-sessions-hook #'abx--update-mode-lines)
    (remove-hook 'abx-state-hook #'abx--update-mode-lines))))

(provide 'abx)
;;; abx.el ends here

;;; abx-list.el --- The list of sessions of abx, and what happens  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; A tabulated list that follows the daemon, with keys for what may be done
;; with the session at point; and a buffer of events.

;;; Code:

(require 'cl-lib)
(require 'tabulated-list)
(require 'abx-client)

(declare-function abx-attach "abx")
(declare-function abx-attach-agent "abx")
(declare-function abx-daemon-start "abx")
(declare-function abx-delete "abx")
(declare-function abx-describe "abx")
(declare-function abx-events "abx")
(declare-function abx-fork "abx")
(declare-function abx-pause-or-unpause "abx")
(declare-function abx-rename "abx")
(declare-function abx-resume "abx")
(declare-function abx-save "abx")
(declare-function abx-start "abx")
(declare-function abx-stop "abx")

(defgroup abx-faces nil
  "Colours of abx."
  :group 'abx :group 'faces)

(defface abx-running '((t :inherit success))
  "A session that runs.")
(defface abx-busy '((t :inherit warning))
  "A session that something is being done to.")
(defface abx-stopped '((t :inherit shadow))
  "A session that does not run.")
(defface abx-saved '((t :inherit font-lock-type-face))
  "A session that is saved.")
(defface abx-lost '((t :inherit error))
  "A session that cannot come back.")
(defface abx-waiting '((t :inherit warning :weight bold))
  "An agent that waits for its user.")
(defface abx-name '((t :inherit font-lock-function-name-face))
  "The name of a session.")

(defconst abx-list-buffer-name "*abx*"
  "The list's buffer.")

(defconst abx-list--tick 20
  "Seconds after which a list that is seen is drawn again: durations grow.")

(defconst abx-list--most-events 2000
  "Lines of events that are kept.")

(defconst abx-list--before 200
  "Events that are shown of what has happened before.")

(defun abx-duration (seconds)
  "SECONDS as `abx ls' has them: 45s, 12m, 2h 14m, 3d."
  (let ((seconds (max 0 (floor seconds))))
    (cond
     ((< seconds 60) (format "%ds" seconds))
     ((< seconds 3600) (format "%dm" (/ seconds 60)))
     ((< seconds 86400)
      (let ((minutes (/ (% seconds 3600) 60)))
        (if (zerop minutes)
            (format "%dh" (/ seconds 3600))
          (format "%dh %dm" (/ seconds 3600) minutes))))
     (t (format "%dd" (/ seconds 86400))))))

(defun abx-list--age (session)
  "Seconds that SESSION exists."
  (condition-case nil
      (float-time (time-subtract nil (encode-time (parse-time-string
                                                   (plist-get session :created_at)))))
    (error 0)))

(defun abx-list--status (session)
  "The state of SESSION, with what is being done to it."
  (let ((status (abx-client--clean (plist-get session :status)))
        (operation (plist-get session :operation))
        (reason (plist-get session :reason)))
    (cond
     ((and operation (not (equal operation "start")))
      (format "%s (%s)" status (abx-client--clean operation)))
     ((and (equal status "stopped") reason (not (equal reason "user")))
      (format "%s (%s)" status (abx-client--clean reason)))
     (t status))))

(defun abx-list--face (session)
  "The face of the state of SESSION."
  (if (plist-get session :operation)
      'abx-busy
    (pcase (plist-get session :status)
      ("running" 'abx-running)
      ("saved" 'abx-saved)
      ("lost" 'abx-lost)
      ("starting" 'abx-busy)
      (_ 'abx-stopped))))

(defun abx-list--attention (session)
  "What the agent of SESSION does, with its words; or how far an operation is."
  (let ((progress (abx-client-progress (plist-get session :name)))
        (attention (plist-get session :attention))
        (note (plist-get session :attention_note)))
    (cond
     (progress (abx-client--clean progress))
     ((null attention) "")
     (t (propertize (concat (abx-client--clean attention)
                            (and note (not (equal note ""))
                                 (concat ": " (abx-client--clean note))))
                    'face (if (equal attention "waiting") 'abx-waiting 'default))))))

(defun abx-list--entry (session)
  "SESSION as a line of the list."
  (list (plist-get session :id)
        (vector (propertize (abx-client--clean (plist-get session :name)) 'face 'abx-name)
                (abx-client--clean (plist-get session :agent))
                (propertize (abx-list--status session) 'face (abx-list--face session))
                (abx-duration (abx-list--age session))
                (number-to-string (or (plist-get session :exec_count) 0))
                (abx-list--attention session))))

(defun abx-list--by (field)
  "A predicate for entries, by what FIELD gives of their sessions."
  (lambda (a b)
    (cl-flet ((value (entry)
                (funcall field (seq-find (lambda (s) (equal (plist-get s :id) (car entry)))
                                         (abx-sessions)))))
      (< (value a) (value b)))))

(defun abx-list--mode-line ()
  "The state of the link."
  (pcase abx-client--phase
    ('ready "")
    ('connecting " [connecting]")
    ('lost " [abxd is away]")
    (_ " [not connected]")))

(defvar abx-list-mode-map
  (let ((map (make-sparse-keymap)))
    (set-keymap-parent map tabulated-list-mode-map)
    (define-key map (kbd "RET") #'abx-attach)
    (define-key map "a" #'abx-attach-agent)
    (define-key map "s" #'abx-start)
    (define-key map "x" #'abx-stop)
    (define-key map "w" #'abx-save)
    (define-key map "r" #'abx-resume)
    (define-key map "f" #'abx-fork)
    (define-key map "m" #'abx-rename)
    (define-key map "p" #'abx-pause-or-unpause)
    (define-key map "D" #'abx-delete)
    (define-key map "i" #'abx-describe)
    (define-key map "e" #'abx-events)
    (define-key map "E" #'abx-list-all-events)
    map)
  "Keys of the list of sessions.")

(easy-menu-define nil abx-list-mode-map "Menu of the list of sessions."
  '("Abx"
    ["Attach" abx-attach] ["Attach the agent" abx-attach-agent] "--"
    ["Start..." abx-start] ["Stop" abx-stop] ["Save" abx-save] ["Resume" abx-resume]
    ["Fork..." abx-fork] ["Rename..." abx-rename] ["Pause, or go on" abx-pause-or-unpause]
    ["Delete..." abx-delete] "--"
    ["Everything about it" abx-describe] ["Its events" abx-events]
    ["All events" abx-list-all-events]))

(define-derived-mode abx-list-mode tabulated-list-mode "abx"
  "The sessions of abx.  The list follows what happens, whoever does it.

\\{abx-list-mode-map}"
  (setq tabulated-list-format
        (vector '("NAME" 20 t)
                '("AGENT" 10 t)
                '("STATUS" 16 t)
                (list "DURATION" 10 (abx-list--by #'abx-list--age))
                (list "EXECS" 5 (abx-list--by (lambda (s) (or (plist-get s :exec_count) 0)))
                      :right-align t)
                '("ATTENTION" 0 t))
        tabulated-list-padding 0
        tabulated-list-sort-key nil
        mode-line-process '(:eval (abx-list--mode-line)))
  (setq-local revert-buffer-function (lambda (&rest _) (abx-refresh #'abx-list--report)))
  (tabulated-list-init-header))

(defun abx-list--report (err &rest _)
  "Show ERR, if there is one."
  (when err (message "%s" (abx-client-error-text err))))

(defun abx-list--fit ()
  "Make the columns as wide as what is in them needs."
  (let ((name 20) (status 10))
    (dolist (session (abx-sessions))
      (setq name (max name (string-width (plist-get session :name)))
            status (max status (string-width (abx-list--status session)))))
    (setf (cadr (aref tabulated-list-format 0)) (min name 48)
          (cadr (aref tabulated-list-format 2)) (min status 28))
    (tabulated-list-init-header)))

(defun abx-list--draw ()
  "Show the sessions as they are known; each window's point stays on its line."
  (when-let ((buffer (get-buffer abx-list-buffer-name)))
    (with-current-buffer buffer
      (when (derived-mode-p 'abx-list-mode)
        (let ((places (mapcar (lambda (window)
                                (let ((point (window-point window)))
                                  (list window (tabulated-list-get-id point) point
                                        (save-excursion (goto-char point) (current-column)))))
                              (get-buffer-window-list buffer nil t))))
          (abx-list--fit)
          (setq tabulated-list-entries (mapcar #'abx-list--entry (abx-sessions)))
          (tabulated-list-print t)
          (when (and (null tabulated-list-entries) (eq abx-client--phase 'ready))
            (let ((inhibit-read-only t))
              (insert "No sessions yet.  Press s to start one.")
              (goto-char (point-min))))
          (pcase-dolist (`(,window ,id ,point ,column) places)
            (set-window-point window (or (and id (abx-list--position id column))
                                         (min point (point-max)))))
          (force-mode-line-update))))))

(defun abx-list--position (id column)
  "The place of COLUMN in the line of ID."
  (save-excursion
    (goto-char (point-min))
    (while (not (or (eobp) (equal (tabulated-list-get-id) id)))
      (forward-line 1))
    (unless (eobp)
      (move-to-column column)
      (point))))

(defvar abx-list--timer nil "The timer that draws the list again.")

(defun abx-list-open ()
  "Show the list of sessions, and give its buffer."
  (let ((buffer (get-buffer-create abx-list-buffer-name)))
    (with-current-buffer buffer
      (unless (derived-mode-p 'abx-list-mode)
        (abx-list-mode)
        (add-hook 'abx-sessions-hook #'abx-list--draw)
        (add-hook 'abx-state-hook #'abx-list--draw)
        (unless abx-list--timer
          (setq abx-list--timer
                (run-at-time abx-list--tick abx-list--tick
                             (lambda ()
                               (when (get-buffer-window abx-list-buffer-name t)
                                 (abx-list--draw))))))
        (add-hook 'kill-buffer-hook
                  (lambda ()
                    (when abx-list--timer
                      (cancel-timer abx-list--timer)
                      (setq abx-list--timer nil)))
                  nil t)))
    (pop-to-buffer buffer)
    (abx-list--draw)
    (abx-refresh #'abx-list--report)
    buffer))

(defun abx-list-current ()
  "The name of the session at point, in the list; else nil."
  (when (derived-mode-p 'abx-list-mode)
    (when-let ((id (tabulated-list-get-id)))
      (plist-get (seq-find (lambda (s) (equal (plist-get s :id) id)) (abx-sessions)) :name))))

;;; Events

(defun abx-list--event-text (event)
  "EVENT in one line."
  (if (equal (plist-get event :kind) "subscribed")
      (format "%d events are no longer kept" (plist-get (plist-get event :data) :missed))
    (abx-list--told-text event)))

(defun abx-list--told-text (event)
  "EVENT, which is in the table, in one line."
  (let* ((data (plist-get event :data))
         (data (and (listp data) data))
         (by (plist-get event :by))
         (at (abx-client--clean (plist-get event :at))))
    (string-join
     (delq nil
           (append
            (list (if (string-match "T\\([0-9:]+\\)" at) (match-string 1 at) at)
                  (abx-client--clean (plist-get event :kind))
                  (and (plist-get event :session)
                       (abx-client--clean (plist-get event :session)))
                  (and (plist-get data :from) (plist-get data :to)
                       (format "%s -> %s" (abx-client--clean (plist-get data :from))
                               (abx-client--clean (plist-get data :to)))))
            (cl-loop for (key value) on data by #'cddr
                     unless (or (memq key '(:from :to)) (null value))
                     collect (format "%s=%s" (substring (symbol-name key) 1)
                                     (abx-client--clean
                                      (cond ((vectorp value)
                                             (mapconcat (lambda (v) (format "%s" v)) value ","))
                                            ((eq value :json-false) "false")
                                            ((eq value t) "true")
                                            (t value)))))
            (list (and by (format "by %s%s" (abx-client--clean (plist-get by :client))
                                  (if (plist-get by :pid)
                                      (format " %s" (plist-get by :pid))
                                    ""))))))
     "  ")))

(define-derived-mode abx-events-mode special-mode "abx-events"
  "What happens in abx."
  (setq truncate-lines t)
  (buffer-disable-undo))

(defun abx-list--append (buffer lines)
  "Add LINES to BUFFER; a window at its end stays at its end."
  (when (buffer-live-p buffer)
    (with-current-buffer buffer
      (let ((inhibit-read-only t)
            (followers (seq-filter (lambda (window) (= (window-point window) (point-max)))
                                   (get-buffer-window-list buffer nil t)))
            (at-end (eobp)))
        (save-excursion
          (goto-char (point-max))
          (dolist (line lines) (insert line "\n"))
          (let ((extra (- (count-lines (point-min) (point-max)) abx-list--most-events)))
            (when (> extra 0)
              (goto-char (point-min))
              (forward-line extra)
              (delete-region (point-min) (point)))))
        (when at-end (goto-char (point-max)))
        (dolist (window followers) (set-window-point window (point-max)))))))

(defun abx-list-events (name)
  "Show what happens to the session NAME, or everything, in a buffer it gives."
  (let* ((title (if name (format "*abx events: %s*" name) "*abx events*"))
         (known (get-buffer title))
         (buffer (get-buffer-create title)))
    (pop-to-buffer buffer)
    (unless known
      (abx-events-mode)
      (let* ((id (plist-get (and name (abx-session name)) :id))
             last held
             (show (lambda (event)
                     (cond
                      ((equal (plist-get event :kind) "progress"))
                      ;; What is read of the past says by itself where it begins.
                      ((equal (plist-get event :kind) "subscribed")
                       (when last (abx-list--append buffer (list (abx-list--event-text event)))))
                      ((and name (not (equal (plist-get event :session) name))
                            (not (and id (equal (plist-get event :session_id) id)))))
                      ;; What comes before the past is written waits for it.
                      ((not last) (push event held))
                      ((> (plist-get event :seq) last)
                       (setq last (plist-get event :seq))
                       (abx-list--append buffer (list (abx-list--event-text event))))))))
        (add-hook 'abx-event-functions show)
        (with-current-buffer buffer
          (add-hook 'kill-buffer-hook
                    (lambda () (remove-hook 'abx-event-functions show)) nil t))
        (abx-request
         "event.list" (list :session name :limit abx-list--before)
         (lambda (err list)
           (when err
             (abx-list--append buffer (split-string (abx-client-error-text err) "\n")))
           (let ((list (append list nil)))
             (setq last (or (plist-get (car (last list)) :seq) 0))
             (abx-list--append buffer (mapcar #'abx-list--event-text list))
             (mapc show (reverse held))
             (setq held nil))))))
    buffer))

(defun abx-list-all-events ()
  "Show everything that happens."
  (interactive)
  (abx-list-events nil))

;;; Everything about one

(defun abx-list--value (value)
  "VALUE of a field for people."
  (abx-client--clean
   (cond ((null value) "-")
         ((eq value t) "yes")
         ((eq value :json-false) "no")
         ((vectorp value) (mapconcat #'abx-list--value value ", "))
         ((and (consp value) (keywordp (car value)))
          (cl-loop for (key each) on value by #'cddr
                   collect (format "%s=%s" (substring (symbol-name key) 1) (abx-list--value each))
                   into parts finally return (string-join parts " ")))
         (t value))))

(defun abx-list-describe (session)
  "Show everything about SESSION in a help window."
  (help-setup-xref (list #'abx-list-describe session) nil)
  (with-help-window (help-buffer)
    (cl-loop for (key value) on session by #'cddr
             do (princ (format "%-16s %s\n" (substring (symbol-name key) 1)
                               (abx-list--value value))))))

(provide 'abx-list)
;;; abx-list.el ends here

;;; abx-tests.el --- Tests of abx.el against a live daemon and engine  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; Run by run.sh, which gives the program, an image and a home.  ERT runs
;; tests in the order of their names, and later ones use what earlier ones made.

;;; Code:

(require 'ert)
(require 'cl-lib)
(require 'abx)

(defconst t-limit 30 "Longest wait for anything, in seconds: a limit, not a measure.")
(defconst t-abx (getenv "ABX_TEST_ABX"))
(defconst t-image (getenv "ABX_TEST_IMAGE"))
(defconst t-dir (getenv "ABX_TEST_DIR"))

(setq abx-program t-abx
      abx-start-parameters (list :image t-image))

(defmacro t-wait (what &rest body)
  "Wait for WHAT until BODY gives non-nil, and give that."
  (declare (indent 1))
  `(let ((end (+ (float-time) t-limit)) result)
     (while (not (setq result (progn ,@body)))
       (when (> (float-time) end)
         (ert-fail (format "waited in vain for %s" ,what)))
       (accept-process-output nil 0.02))
     result))

(defun t-call (function &rest arguments)
  "Call FUNCTION with ARGUMENTS and a callback; give (error result)."
  (let (answer)
    (apply function (append arguments (list (lambda (err &optional result)
                                              (setq answer (list err result))))))
    (t-wait "an answer" answer)))

(defun t-get (function &rest arguments)
  "As `t-call' with FUNCTION and ARGUMENTS, for what must succeed."
  (pcase-let ((`(,err ,result) (apply #'t-call function arguments)))
    (when err (ert-fail (list function err)))
    result))

(defun t-run (&rest arguments)
  "Run the command line with ARGUMENTS and give what it printed."
  (with-temp-buffer
    (let ((code (apply #'call-process t-abx nil t nil arguments)))
      (unless (eql code 0) (ert-fail (list arguments (buffer-string))))
      (buffer-string))))

(defun t-text (buffer)
  "The text of BUFFER."
  (with-current-buffer buffer (buffer-substring-no-properties (point-min) (point-max))))

(defun t-list-matches (regexp)
  "Whether the list matches REGEXP."
  (string-match-p regexp (t-text abx-list-buffer-name)))

(defun t-has (name field value)
  "Wait until FIELD of the session NAME is VALUE."
  (t-wait (list name field value) (equal value (plist-get (abx-session name) field))))

(defun t-gone (name)
  "Wait until there is no session NAME."
  (t-wait (list name "to be gone") (not (abx-session name))))

(defun t-ready ()
  "Make the link, starting the daemon."
  (t-get #'abx-refresh))

;;; What needs no daemon

(ert-deftest t-a1-durations-read-as-those-of-the-command-line ()
  (pcase-dolist (`(,seconds ,want) '((0 "0s") (59.9 "59s") (60 "1m") (3600 "1h") (8040 "2h 14m") (259200 "3d")))
    (should (equal (abx-duration seconds) want))))

(ert-deftest t-a2-what-comes-from-a-sandbox-cannot-break-a-line ()
  (should (equal (abx-client--clean "a\e[31mb\nc") "a [31mb c"))
  (should (equal (substring-no-properties
                  (abx-list--attention '(:name "x" :attention "waiting" :attention_note "may I\nrm?")))
                 "waiting: may I rm?")))

(ert-deftest t-a3-an-event-is-one-line-with-who-did-it ()
  (should (equal (abx-list--event-text
                  '(:seq 1 :at "2026-02-01T10:20:30.123Z" :kind "session.status" :session "x"
                    :data (:from "starting" :reason nil :to "running") :by (:client "abx" :pid 7)))
                 "10:20:30  session.status  x  starting -> running  by abx 7")))

(ert-deftest t-a3b-a-hole-in-the-events-is-told-in-words ()
  (should (equal (abx-list--event-text '(:kind "subscribed" :seq 7 :data (:missed 5)))
                 "5 events are no longer kept"))
  (let (told)
    (let ((abx-event-functions (list (lambda (event) (push event told))))
          (abx-client--seq nil))
      (cl-letf (((symbol-function 'abx-client--refresh-soon) #'ignore))
        (abx-client--event '(:kind "subscribed" :seq 7 :data (:missed 0)))
        (should-not told)
        (abx-client--event '(:kind "subscribed" :seq 9 :data (:missed 2)))
        (should (equal (length told) 1))
        (should (equal abx-client--seq 9))))))

(ert-deftest t-a4-a-workspace-is-read-as-the-command-line-reads-it ()
  (let ((default-directory "/srv/"))
    (should (equal (abx-workspace "web") '(:source "/srv/web" :target "" :read_only :json-false)))
    (should (equal (abx-workspace "/x:/y:ro") '(:source "/x" :target "/y" :read_only t)))
    (should (equal (abx-workspace ".:ro") '(:source "/srv" :target "" :read_only t)))))

(ert-deftest t-a5-hashes-are-those-of-fnv-1a ()
  (should (equal (abx-client--hash "") "cbf29ce484222325"))
  (should (equal (abx-client--hash "a") "af63dc4c8601ec8c"))
  (should (equal (abx-client--hash "foobar") "85944171f73967e8")))

(ert-deftest t-a6-vterm-gets-words-in-the-environment-and-never-in-a-shell ()
  (pcase-let* ((command (abx-attach-command "it's $(touch x)" '(:command ("a b" "c"))))
               (`(,shell . ,environment) (abx-attach--vterm-shell command)))
    (should (string-match-p "\\`\\(\"\\$ABX_ATTACH_[0-9]+\" ?\\)+\\'" shell))
    ;; What the shell makes of it is the command line again.
    (let ((process-environment (append environment process-environment)))
      (with-temp-buffer
        (call-process "/bin/sh" nil t nil "-c" (concat "printf '%s\\n' " shell))
        (should (equal (split-string (buffer-string) "\n" t) command))))))

;;; The link

(ert-deftest t-b1-a-program-that-is-not-there-is-an-error-with-a-hint ()
  (let ((abx-program "/no/such/abx"))
    (abx-client-reset)
    (let ((err (car (t-call #'abx-refresh))))
      (should (equal (plist-get err :kind) "no_abx"))
      (should (string-match-p "abx-program" (plist-get err :hint))))
    (should (equal (plist-get (car (t-call #'abx-attach-open "x" nil)) :kind) "no_abx"))))

(ert-deftest t-b2-without-autostart-no-daemon-is-started ()
  (let ((abx-autostart nil))
    (abx-client-reset)
    (let ((err (car (t-call #'abx-refresh))))
      (should (equal (plist-get err :kind) "daemon_unreachable"))
      (should (string-match-p "abx daemon start" (plist-get err :hint))))
    (should (eq abx-client--phase 'off))
    (should (equal (abx-mode-line) ""))))

(ert-deftest t-b3-a-daemon-that-cannot-start-says-why ()
  (let ((abx-home (expand-file-name "a-file" t-dir)))
    (write-region "" nil abx-home)
    (abx-client-reset)
    (let ((err (car (t-call #'abx-refresh))))
      (should (equal (plist-get err :kind) "daemon_unreachable"))
      (should (plist-get err :hint)))))

(ert-deftest t-b4-the-check-says-what-is-missing ()
  (let ((abx-program "/no/such/abx") (abx-home (expand-file-name "nobody" t-dir)))
    (abx-client-reset)
    (abx-check)
    (t-wait "its end" (string-match-p "^done" (t-text "*abx check*")))
    (should (string-match-p "WRONG  there is no program" (t-text "*abx check*")))
    (should (string-match-p "no abxd runs there" (t-text "*abx check*")))
    (should-not (string-match-p "make client process" (t-text "*abx check*")))))

(ert-deftest t-b4-the-check-says-that-abxd-is-missing-and-what-to-do ()
  (let* ((lone (expand-file-name "lone" t-dir))
         (abx-program (expand-file-name "abx" lone))
         (abx-home (expand-file-name "nobody" t-dir))
         (process-environment (cons (concat "PATH=" lone) process-environment)))
    (make-directory lone)
    (copy-file t-abx abx-program)
    (abx-client-reset)
    (abx-check)
    (t-wait "its end" (string-match-p "^done" (t-text "*abx check*")))
    (should (string-match-p "WRONG  there is no abxd .*\n +Hint: install abxd beside abx"
                            (t-text "*abx check*")))))

(ert-deftest t-b4-the-check-starts-nothing-where-it-may-not ()
  (let ((abx-autostart nil) (abx-home (expand-file-name "nobody" t-dir)))
    (abx-client-reset)
    (abx-check)
    (t-wait "its end" (string-match-p "^done" (t-text "*abx check*")))
    (should (string-match-p "WRONG  no abxd runs there; .*\n +Hint: run: abx daemon start"
                            (t-text "*abx check*")))
    (should-not (string-match-p "abxd [0-9]\\|make client process" (t-text "*abx check*")))))

(ert-deftest t-b5-a-command-starts-the-daemon ()
  (abx-client-reset)
  (should (equal (t-ready) nil))
  (should (eq abx-client--phase 'ready))
  (should (equal (abx-client-socket) (plist-get (t-get #'abx-request "daemon.info" nil) :socket))))

(ert-deftest t-b6-the-socket-of-a-deep-home-is-the-one-that-abx-computes ()
  (let ((abx-home (expand-file-name (make-string 100 ?d) t-dir)))
    (with-temp-buffer
      (call-process t-abx nil t nil "--home" abx-home "--no-autostart" "ls")
      (should (string-match-p (regexp-quote (abx-client-socket)) (buffer-string))))))

(ert-deftest t-b7-the-check-says-what-is-there ()
  (abx-check)
  (t-wait "its end" (string-match-p "^done" (t-text "*abx check*")))
  (dolist (want '("ok     program" "ok     abxd [0-9]" "ok     engine docker"))
    (should (string-match-p want (t-text "*abx check*"))))
  (should-not (string-match-p "WRONG" (t-text "*abx check*"))))

;; A daemon that is none.

(defun t-without-events (said)
  "The answer alone of what a pretender SAID."
  (cl-loop for (key value) on said by #'cddr
           unless (eq key :events) append (list key value)))

(defmacro t-with-pretender (answer &rest body)
  "Run BODY with a daemon that answers METHOD and PARAMS with what ANSWER gives.
ANSWER is a function; nil from it is no answer at all.  Events that it gives
as :events come behind its answer."
  (declare (indent 1))
  `(let* ((abx-socket (make-temp-name (expand-file-name "s" t-dir)))
          (answer ,answer)
          (server (make-network-process
                   :name "pretender" :family 'local :service abx-socket :server t :noquery t
                   :coding 'binary
                   :filter (lambda (peer text)
                             (with-temp-buffer
                               (insert text)
                               (goto-char (point-min))
                               (while (search-forward "\r\n\r\n" nil t)
                                 (let* ((request (json-parse-buffer :object-type 'plist))
                                        (said (funcall answer (plist-get request :method))))
                                   (when said
                                     (dolist (each (cons (append (list :jsonrpc "2.0" :id (plist-get request :id))
                                                                 (t-without-events said))
                                                         (mapcar (lambda (event)
                                                                   (list :jsonrpc "2.0" :method "event" :params event))
                                                                 (plist-get said :events))))
                                       (let ((json (json-serialize each)))
                                         ;; Who asked may be gone by now.
                                         (ignore-errors
                                           (process-send-string
                                            peer (format "Content-Length: %d\r\n\r\n%s" (length json) json)))))))))))))
     (abx-client-reset)
     (unwind-protect (progn ,@body)
       (abx-client-reset)
       (delete-process server))))

(ert-deftest t-b8-a-daemon-that-does-not-answer-holds-up-nobody-for-long ()
  (should (equal abx-client--answer-limit 10))
  (dolist (mute '("daemon.hello" "event.subscribe" "session.list"))
    (let ((abx-client--answer-limit 0.2))
      (t-with-pretender (lambda (method)
                          (unless (equal method mute)
                            (pcase method
                              ("daemon.hello" '(:result (:server "abxd" :version "0.1.0" :protocol 1)))
                              ("event.subscribe" '(:result 1))
                              (_ '(:result [])))))
        (let ((err (car (t-call #'abx-refresh))))
          (should (equal (plist-get err :message) "abxd does not answer"))
          (should (string-match-p "abx daemon restart" (plist-get err :hint))))))))

(ert-deftest t-b8-a-daemon-that-does-not-answer-who-fell-behind-is-left ()
  (let ((abx-client--answer-limit 0.2) (hellos 0) (subscriptions 0))
    (t-with-pretender (lambda (method)
                        (pcase method
                          ("daemon.hello" (cl-incf hellos)
                           '(:result (:server "abxd" :version "0.1.0" :protocol 1)))
                          ("event.subscribe"
                           (pcase (cl-incf subscriptions)
                             (1 '(:result 1 :events ((:kind "lagged" :seq 4))))
                             (2 nil)
                             (_ '(:result 1))))
                          (_ '(:result []))))
      (t-call #'abx-refresh)
      (t-wait "another link" (and (eql hellos 2) (eq abx-client--phase 'ready))))))

(ert-deftest t-b8-a-daemon-of-another-protocol-is-refused-with-what-to-do ()
  (t-with-pretender (lambda (_) '(:result (:server "abxd" :version "9.0.0" :protocol 9)))
    (let ((err (car (t-call #'abx-refresh))))
      (should (equal (plist-get err :kind) "protocol"))
      (should (equal (plist-get err :message) "abxd 9.0.0 speaks protocol 9, this client 1")))))

(ert-deftest t-b8-a-socket-of-another-user-or-in-a-directory-of-another-gets-nothing ()
  (skip-unless (eql (user-uid) 0))
  (let* ((heard 0)
         (t-dir (make-temp-file (expand-file-name "theirs" t-dir) t))
         (own (lambda (path uid) (should (eql 0 (call-process "chown" nil nil nil uid path))))))
    (t-with-pretender (lambda (_) (cl-incf heard) nil)
      (dolist (each (list abx-socket t-dir))
        (funcall own each "65534")
        (let ((err (car (t-call #'abx-refresh))))
          (should (equal (plist-get err :kind) "daemon_unreachable"))
          (should (equal (plist-get err :message)
                         (format "%s belongs to user 65534, not to this one" each)))
          (should (string-match-p "ABX_HOME" (plist-get err :hint))))
        (funcall own each "0")))
    (should (eql heard 0))))

(ert-deftest t-b8-what-a-daemon-that-stops-has-not-begun-is-said-in-one-plain-line ()
  (let ((begun :false))
    (t-with-pretender (lambda (method)
                        (pcase method
                          ("daemon.hello" '(:result (:server "abxd" :version "0.1.0" :protocol 1)))
                          ("session.stop"
                           `(:error (:code 21 :message "the daemon is stopping"
                                     :data (:kind "shutting_down" :begun ,begun))))
                          (_ '(:result []))))
      (let ((err (car (t-call #'abx-stop "x"))))
        (should (equal (plist-get err :kind) "shutting_down"))
        (should (equal (plist-get err :message) "abxd is stopping, and has begun nothing"))
        (should (string-match-p "do it again" (plist-get err :hint))))
      (setq begun t)
      (should (equal (plist-get (car (t-call #'abx-stop "x")) :message) "the daemon is stopping")))))

(ert-deftest t-b8-a-daemon-without-events-is-asked-again-after-each-command ()
  (let ((lists 0))
    (t-with-pretender (lambda (method)
                        (pcase method
                          ("daemon.hello" '(:result (:server "abxd" :version "0.0.9" :protocol 1)))
                          ("session.list" (cl-incf lists) '(:result []))
                          ("session.stop" '(:result (:name "x")))
                          (_ '(:error (:code -32601 :message "Method not found")))))
      (t-get #'abx-refresh)
      (let ((before lists))
        (t-get #'abx-stop "x")
        (t-wait "another list" (> lists before))))))

(defvar t-refuses nil "Whether the daemon that refuses does so now.")
(defvar t-hellos 0 "Greetings that it got.")
(defvar t-subscriptions 0 "Subscriptions that it gave.")

(defun t-refusing (refused kind)
  "A pretender that refuses the method REFUSED with KIND while `t-refuses'."
  (setq t-refuses t t-hellos 0 t-subscriptions 0)
  (lambda (method)
    (cond
     ((equal method "daemon.hello")
      (cl-incf t-hellos)
      '(:result (:server "abxd" :version "0.1.0" :protocol 1)))
     ((and t-refuses (equal method refused))
      `(:error (:code 17 :message "not now" :data (:kind ,kind))))
     ((equal method "event.subscribe")
      (list :result (cl-incf t-subscriptions)
            :events `((:kind "subscribed" :seq ,t-subscriptions))))
     ((equal method "session.rename") '(:result (:name "x") :events ((:kind "lagged" :seq 5))))
     (t '(:result [])))))

(ert-deftest t-b8-a-link-that-is-refused-something-says-so-and-is-made-again ()
  (pcase-dolist (`(,method ,kind) '(("session.list" "internal") ("event.subscribe" "limit")))
    (t-with-pretender (t-refusing method kind)
      (should (equal (plist-get (car (t-call #'abx-refresh)) :kind) kind))
      (t-wait "the loss" (eq abx-client--phase 'lost))
      (t-wait "another attempt" (> t-hellos 1))
      (setq t-refuses nil)
      (t-wait "the link" (eq abx-client--phase 'ready))
      (should (> t-subscriptions 0)))))

(ert-deftest t-b8-who-fell-behind-and-may-not-subscribe-again-connects-again ()
  (t-with-pretender (t-refusing "event.subscribe" "limit")
    (setq t-refuses nil)
    (t-get #'abx-refresh)
    (setq t-refuses t)
    (t-get #'abx-request "session.rename" '(:name "x" :new_name "y"))
    (t-wait "the loss" (eq abx-client--phase 'lost))
    (setq t-refuses nil)
    (t-wait "the link" (eq abx-client--phase 'ready))
    (should (equal t-subscriptions 2))))

(ert-deftest t-b9-an-engine-that-is-away-is-an-error-with-a-hint ()
  (let ((process-environment (cons "DOCKER_HOST=unix:///no/such/engine.sock" process-environment))
        (abx-home (expand-file-name "away" t-dir)))
    (abx-client-reset)
    (unwind-protect
        (let ((err (car (t-call #'abx-start "nowhere" nil))))
          (should (equal (plist-get err :kind) "engine_unavailable"))
          (should (string-match-p "Hint: " (abx-client-error-text err)))
          (should (equal (t-get #'abx-refresh) nil))
          ;; As the first thing that is done: the check itself starts the daemon.
          (t-run "--home" abx-home "daemon" "stop")
          (abx-client-reset)
          (abx-check)
          (t-wait "its end" (string-match-p "^done" (t-text "*abx check*")))
          (should (string-match-p "WRONG  engine docker" (t-text "*abx check*"))))
      (t-run "--home" abx-home "daemon" "stop")
      (abx-client-reset))))

;;; Sessions

(ert-deftest t-c1-the-list-follows-what-happens-whoever-does-it ()
  (t-ready)
  (abx)
  (t-wait "the empty list" (t-list-matches "No sessions yet"))
  (abx-start "one" '(:agent "codex" :metadata (:team "a") :env (:SECRET "s")))
  (t-wait "a line" (t-list-matches "^one +codex +running +[0-9]+s +0"))
  (should (equal (plist-get (abx-session "one") :metadata) '(:team "a")))
  (t-run "start" "two" "--image" t-image)
  (t-wait "the other client's" (t-list-matches "^two +claude +running"))
  (t-run "stop" "--grace" "0s" "two")
  (t-wait "its stop" (t-list-matches "^two +claude +stopped"))
  (t-run "delete" "-y" "two")
  (t-gone "two")
  (should-not (t-list-matches "^two ")))

(ert-deftest t-c2-point-stays-on-its-session ()
  (with-current-buffer abx-list-buffer-name
    (goto-char (point-min))
    (search-forward "codex")
    (should (equal (abx-list-current) "one"))
    (let ((line (line-number-at-pos)))
      (t-run "start" "zwei" "--image" t-image)
      (t-has "zwei" :status "running")
      (t-wait "a line above" (t-list-matches "^zwei"))
      (should (equal (abx-list-current) "one"))
      (should-not (eql line (line-number-at-pos))))
    (t-run "delete" "-y" "zwei")
    (t-gone "zwei")))

(ert-deftest t-c3-the-verbs-do-what-they-say ()
  (t-run "exec" "one" "--" "sh" "-c" "echo kept > /root/note")
  (t-get #'abx-pause-or-unpause "one")
  (t-has "one" :status "paused")
  (t-get #'abx-pause-or-unpause "one")
  (t-has "one" :status "running")
  (let ((result (t-get #'abx-save "one" '(:snapshot "first"))))
    (should (equal (plist-get (plist-get result :snapshot) :name) "first")))
  (t-has "one" :status "saved")
  (t-get #'abx-fork "one" "three" '(:snapshot "first"))
  (should (equal (string-trim (t-run "exec" "three" "--" "cat" "/root/note")) "kept"))
  (t-get #'abx-rename "three" "four")
  (t-has "four" :status "running")
  (t-get #'abx-resume "one" nil)
  (t-has "one" :status "running")
  (t-get #'abx-stop "one")
  (t-has "one" :status "stopped")
  (t-get #'abx-delete "four" nil)
  (t-gone "four"))

(ert-deftest t-c4-delete-asks-first ()
  (let (asked)
    (with-current-buffer abx-list-buffer-name
      (goto-char (point-min))
      (search-forward "one")
      (cl-letf (((symbol-function 'yes-or-no-p) (lambda (prompt) (setq asked prompt) nil)))
        (should-error (call-interactively #'abx-delete) :type 'user-error)))
    (should (equal asked "Delete session 'one', its container and 1 snapshot? "))
    (should (abx-session "one")))
  (pcase-dolist (`(,snapshots ,keep ,want)
                 '((0 nil "Delete session 'x' and its container? It has no snapshot. ")
                   (0 t "Delete session 'x' and its container? It has no snapshot. ")
                   (2 nil "Delete session 'x', its container and 2 snapshots? ")
                   (2 t "Delete session 'x' and its container, and keep 2 snapshots? ")
                   (nil nil "Delete session 'x', its container and its snapshots? ")))
    (should (equal (abx--delete-question "x" snapshots keep) want))))

(ert-deftest t-c5-names-are-names-and-never-commands ()
  (let ((name "it's $(touch x) \\ `y` \"q\" % é"))
    (t-get #'abx-start name nil)
    (t-has name :status "running")
    (should (equal (all-completions "it" (abx--names)) (list name)))
    (t-wait "its line" (t-list-matches (regexp-quote name)))
    (t-get #'abx-stop name)
    (t-get #'abx-delete name nil)
    (t-gone name)))

(ert-deftest t-c6-names-are-read-with-completion-and-their-state ()
  (let (table)
    (cl-letf (((symbol-function 'completing-read)
               (lambda (_ collection &rest _) (setq table collection) "one")))
      (with-temp-buffer
        (should (equal (abx-read-session "Session") "one"))))
    (should (equal (all-completions "o" table) '("one")))
    (should (eq (completion-metadata-get (completion-metadata "" table nil) 'category) 'abx-session))
    (should (string-match-p "stopped +codex" (abx--annotation "one")))))

(ert-deftest t-c7-an-error-of-the-daemon-has-its-hint ()
  (let ((err (car (t-call #'abx-start "one" nil))))
    (should (equal (plist-get err :kind) "session_exists"))
    (should (string-match-p "Hint: " (abx-client-error-text err))))
  (should (equal (plist-get (car (t-call #'abx-start "bad/name" nil)) :kind) "invalid_name"))
  (should (equal (plist-get (car (t-call #'abx-stop "nobody")) :kind) "session_not_found")))

(ert-deftest t-c8-progress-is-heard-and-forgotten ()
  (let* (seen (hear (lambda (event)
                      (when (equal (plist-get event :kind) "progress")
                        (push (plist-get (plist-get event :data) :text) seen)))))
    (add-hook 'abx-event-functions hear)
    (unwind-protect (t-get #'abx-save "one" '(:snapshot "second"))
      (remove-hook 'abx-event-functions hear))
    (should (stringp (car seen)))
    (should-not (abx-client-progress "one"))))

(ert-deftest t-c9-events-are-shown-as-they-come ()
  (let ((buffer (abx-list-events "one")))
    (t-wait "what was before" (string-match-p "session.created  one.* by emacs" (t-text buffer)))
    (t-run "resume" "one")
    (t-wait "what comes" (string-match-p "saved -> running.* by abx [0-9]+" (t-text buffer)))
    (t-run "start" "other" "--image" t-image)
    (t-has "other" :status "running")
    (t-run "delete" "-y" "other")
    (t-gone "other")
    (should-not (string-match-p "other" (t-text buffer)))
    (let ((before (length abx-event-functions)))
      (kill-buffer buffer)
      (should (= (length abx-event-functions) (1- before))))))

(ert-deftest t-d1-attention-is-in-the-list-the-mode-line-and-a-message ()
  (should (equal (abx-mode-line) " abx:1/1"))
  (let (said)
    (cl-letf (((symbol-function 'message)
               (lambda (format &rest arguments) (push (apply #'format format arguments) said))))
      ;; What a daemon with attention would list.
      (abx-client--take (list (append '(:attention "waiting" :attention_note "run rm -rf?")
                                      (abx-session "one")))))
    (should (member "abx: one waits for you: run rm -rf?" said)))
  ;; A deletion ends what runs in it, which is not done; an agent that ends by itself is.
  (pcase-dolist (`(,operation ,want) '(("delete" nil) (nil ("abx: one is done"))))
    (let (said)
      (cl-letf (((symbol-function 'message)
                 (lambda (format &rest arguments) (push (apply #'format format arguments) said))))
        (abx-client--take (list (append '(:attention "working") (abx-session "one"))))
        (abx-client--take (list (append (list :attention "done" :attention_note nil
                                              :operation operation)
                                        (abx-session "one")))))
      (should (equal said want))))
  (abx-client--take (list (append '(:attention "waiting" :attention_note "run rm -rf?")
                                  (abx-session "one"))))
  (should (equal (substring-no-properties (abx-mode-line)) " abx:1/1 one waits"))
  (should (t-list-matches "waiting: run rm -rf\\?"))
  (t-get #'abx-refresh)
  (should-not (t-list-matches "waiting")))

(ert-deftest t-d2-a-restart-of-the-daemon-is-survived ()
  (let* (seen (hear (lambda (event)
                      (push (format "%s %s" (plist-get event :kind) (plist-get event :session)) seen))))
    (add-hook 'abx-event-functions hear)
    (should (> abx-client--seq 0))
    (t-run "daemon" "stop")
    (t-wait "the loss" (not (eq abx-client--phase 'ready)))
    (t-wait "the mode line" (equal (abx-mode-line) " abx:away"))
    (t-run "daemon" "start")
    (t-run "start" "meanwhile" "--image" t-image)
    (t-wait "the link" (eq abx-client--phase 'ready))
    (t-has "meanwhile" :status "running")
    (t-wait "its events" (member "session.created meanwhile" seen))
    (remove-hook 'abx-event-functions hear)
    ;; The connection that ended left nothing behind.
    (t-wait "the library's buffers to go"
      (<= (length (seq-uniq (delq nil (mapcar (lambda (buffer)
                                                (and (string-match "\\* abx \\([0-9]+\\) " (buffer-name buffer))
                                                     (match-string 1 (buffer-name buffer))))
                                              (buffer-list)))))
          1))
    ;; Each once, whether it was replayed or came live.
    (should (= 1 (cl-count "session.created meanwhile" seen :test #'equal)))
    (t-get #'abx-delete "meanwhile" nil)
    (t-gone "meanwhile")))

(ert-deftest t-d3-requests-under-way-are-told-that-the-daemon-is-gone ()
  (let (answer)
    (abx-request "exec.run" '(:session "one" :cmd ["sleep" "1000"])
                 (lambda (err _) (setq answer (list err))))
    (t-wait "the command" (string-match-p "sleep" (t-run "exec" "list" "one" "--json")))
    (t-run "daemon" "stop")
    (t-wait "an answer" answer)
    (should (car answer))))

(ert-deftest t-d4-a-command-while-the-daemon-is-away-starts-it ()
  (t-wait "the loss" (not (eq abx-client--phase 'ready)))
  (should (= 1 (length (t-ready))))
  (should (eq abx-client--phase 'ready)))

;;; Terminals, with keys that are typed into a second Emacs on a PTY of this one

(defvar t-editor nil "The second Emacs.")

(defun t-eval (form)
  "What FORM gives in the second Emacs, or nil while it does not answer."
  (with-temp-buffer
    ;; Not `call-process': the second Emacs would wait for this one to read what it draws.
    (let ((client (make-process
                   :name "emacsclient" :buffer (current-buffer) :noquery t :connection-type 'pipe
                   :stderr (get-buffer-create " *emacsclient errors*") :sentinel #'ignore
                   :command (list (getenv "EMACSCLIENT") "-s" (expand-file-name "server" t-dir)
                                  "--eval" (prin1-to-string form)))))
      (with-timeout (10 (delete-process client))
        (while (accept-process-output client))
        (while (process-live-p client) (accept-process-output nil 0.01)))
      (when (eql 0 (process-exit-status client))
        (goto-char (point-min))
        (ignore-errors (read (current-buffer)))))))

(defun t-type (keys)
  "Type KEYS."
  (process-send-string t-editor keys))

(defun t-selected ()
  "Name and text of the selected buffer of the second Emacs."
  (t-eval '(with-current-buffer (window-buffer (selected-window))
             (cons (buffer-name) (buffer-substring-no-properties (point-min) (point-max))))))

(defun t-shows (name regexp)
  "Wait until the buffer NAME is selected and matches REGEXP."
  (let (last)
    (condition-case nil
        (t-wait (list name regexp)
          (setq last (t-selected))
          (and (equal (car last) name) (string-match-p regexp (cdr last))))
      (ert-test-failed (ert-fail (list "waited in vain for" name regexp "have" last))))))

(ert-deftest t-e1-a-second-emacs-starts ()
  (let ((process-environment (append '("TERM=xterm" "LANG=C.UTF-8") process-environment))
        (default-directory (file-name-as-directory t-dir)))
    (setq t-editor
          (make-process
           :name "emacs" :buffer (generate-new-buffer "emacs") :connection-type 'pty :noquery t
           :command (list (getenv "EMACS") "-nw" "-Q" "-L" (expand-file-name "lisp" t-dir) "--eval"
                          (prin1-to-string
                           `(progn
                              (require 'abx)
                              (when ,(getenv "ABX_TEST_VTERM")
                                (add-to-list 'load-path ,(getenv "ABX_TEST_VTERM"))
                                (require 'vterm))
                              (setq abx-program ,t-abx
                                    abx-terminal-emulator ',(if (getenv "ABX_TEST_VTERM") 'vterm 'term)
                                    abx-start-parameters '(:image ,t-image)
                                    server-name ,(expand-file-name "server" t-dir)
                                    server-socket-dir ,t-dir
                                    inhibit-startup-screen t
                                    use-short-answers t)
                              (server-start))))))
    (set-process-window-size t-editor 40 120)
    (t-wait "its server" (file-exists-p (expand-file-name "server" t-dir)))
    (t-wait "its answer" (equal 2 (t-eval '(+ 1 1))))))

(ert-deftest t-e2-attach-takes-keys-follows-the-window-is-left-and-found-again ()
  (t-run "stop" "--grace" "0s" "one")
  (t-type "\exabx-attach\rone\r")
  (t-shows "*abx one*" "[#$] ")
  (t-type "echo $((6 * 7))-done\r")
  (t-shows "*abx one*" "^42-done")
  (cl-flet ((sized (mark)
              ;; The last column is for the sign of a line that goes on, or is not.
              (pcase-let ((`(,rows ,least ,most)
                           (t-eval '(list (floor (window-screen-lines)) (window-max-chars-per-line)
                                          (window-body-width)))))
                (t-type (format "until stty size | grep -qE '^%d (%d|%d)$'; do sleep 0.05; done; echo %s-'ok'\r"
                                rows least most mark))
                (t-shows "*abx one*" (format "^%s-ok" mark)))))
    (sized "first")
    (set-process-window-size t-editor 30 90)
    (t-wait "the new size" (equal 90 (t-eval '(frame-width))))
    (sized "second"))
  (t-type "cd /tmp; here=still\r")
  ;; The keys of abx itself leave; the shell goes on.
  (t-type "\C-]d")
  (t-wait "the buffer to go" (eq 'gone (t-eval '(if (get-buffer "*abx one*") 'there 'gone))))
  (t-type "\exabx-attach\rone\r")
  (t-shows "*abx one*" "[#$] ")
  (t-type "echo $here there\r")
  (t-shows "*abx one*" "^still there")
  ;; Attaching again goes to the buffer that is there.
  (t-eval '(with-selected-window (selected-window) (switch-to-buffer "*scratch*") t))
  (t-type "\exabx-attach\rone\r")
  (t-shows "*abx one*" "^still there")
  (should-not (t-eval '(get-buffer "*abx one*<2>")))
  (t-eval '(with-current-buffer "*abx one*" (abx-detach) t))
  (t-wait "no client"
    (string-match-p "\"clients\": *0" (t-run "terminal" "list" "one" "--json"))))

(ert-deftest t-e3-a-bad-end-stays-on-the-screen ()
  (t-eval '(progn (abx-attach "one" '(:terminal "bad" :command ("sh" "-c" "echo oops; exit 3"))) t))
  (t-shows "*abx one/bad*" "oops")
  (t-shows "*abx one/bad*" "exited abnormally with code 3"))

(ert-deftest t-e4-keys-of-the-list-do-what-they-say ()
  (t-type "\exabx\r")
  (t-shows "*abx*" "^one ")
  (t-eval '(with-selected-window (selected-window) (goto-char (point-min)) (search-forward "one") t))
  (t-type "f\C-a\C-kforked\r")
  (t-shows "*abx*" "^forked +codex +running")
  (t-eval '(with-selected-window (selected-window) (goto-char (point-min)) (search-forward "forked") t))
  (t-type "x")
  (t-shows "*abx*" "^forked +codex +stopped")
  (t-type "w")
  (t-shows "*abx*" "^forked +codex +saved")
  (t-type "r")
  (t-shows "*abx*" "^forked +codex +running")
  (t-type "D")
  (t-wait "the question"
    (string-match-p "and 1 snapshot" (or (t-eval '(or (and (active-minibuffer-window)
                                                            (with-current-buffer (window-buffer (active-minibuffer-window))
                                                              (buffer-string)))
                                                       "")) "")))
  (t-type "y\r")
  (t-wait "the delete" (not (string-match-p "^forked" (cdr (t-selected))))))

(ert-deftest t-e5-the-second-emacs-ends ()
  (when (process-live-p t-editor)
    (delete-process t-editor))
  (should-not (process-live-p t-editor)))

(provide 'abx-tests)
;;; abx-tests.el ends here

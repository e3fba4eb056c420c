;;; abx-client.el --- The link to the daemon of abx  -*- lexical-binding: t; -*-

;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; The editor's one link to the daemon: connects, starts it when asked to,
;; comes back after a restart, and keeps the table of sessions as the daemon
;; has it.  Nothing here waits.
;;
;; Events are hints: whenever one says that something changed, the list is
;; asked for again, once at a time.

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'subr-x)

(defgroup abx nil
  "Named, persistent sandboxes for coding agents."
  :group 'tools
  :prefix "abx-")

(defcustom abx-program "abx"
  "The program: a path, or a name that is looked up in variable `exec-path'."
  :type 'string)

(defcustom abx-home nil
  "The home of abx.
When nil, the environment variable ABX_HOME, else ~/.abx."
  :type '(choice (const :tag "As abx itself" nil) directory))

(defcustom abx-socket nil
  "The socket of the daemon.
When nil, the environment variable ABX_SOCKET, else that of the home."
  :type '(choice (const :tag "As abx itself" nil) file))

(defcustom abx-autostart t
  "Whether a command starts the daemon when none runs."
  :type 'boolean)

(defvar abx-sessions-hook nil
  "Functions that are called whenever the sessions changed.")

(defvar abx-event-functions nil
  "Functions that are called with each event of the daemon, a plist.
One of kind \"subscribed\" tells in its data how many are missing before it.")

(defvar abx-state-hook nil
  "Functions that are called whenever the state of the link changed.")

(defvar abx-attention-functions nil
  "Functions that are called when what an agent does changed.
With the session, and its attention before.")

(defconst abx-client-protocol 1
  "The protocol that this client speaks.")

(defconst abx-client-version "0.1.0"
  "The version of this client.")

(defconst abx-client--max-socket 94
  "Longest path of a socket, in bytes; past it a short one is used.")

(defconst abx-client--answer-limit 10
  "How long the daemon may take to answer all that makes the link, in seconds.
It does so at once.")

(defconst abx-client--start-limit 20
  "How long the daemon may take to start, in seconds.
The program abx gives up by itself after ten.")

(defconst abx-client--pauses '(0.1 . 5.0)
  "First and longest pause between two attempts to come back, in seconds.")

(defconst abx-client--gather 0.03
  "How long changes are gathered before the list is asked for, in seconds.")

(defvar abx-client--phase 'off
  "State of the link: off, connecting, ready or lost.")
(defvar abx-client--problem nil "Why there is no link, an error.")
(defvar abx-client--connection nil "The connection, while there is one.")
(defvar abx-client--count 0 "Connections so far.")
(defvar abx-client--process nil "Its process.")
(defvar abx-client--server nil "What the daemon said of itself.")
(defvar abx-client--sessions nil "The sessions, newest first.")
(defvar abx-client--events nil "Whether the daemon tells events.")
(defvar abx-client--loaded nil "Whether they have been listed.")
(defvar abx-client--seq nil "Number of the newest event that was seen.")
(defvar abx-client--waiting nil "Callbacks that wait for the link.")
(defvar abx-client--pending nil "Cells of callbacks of requests under way.")
(defvar abx-client--may-start nil "Whether the daemon may be started now.")
(defvar abx-client--pause (car abx-client--pauses) "The next pause.")
(defvar abx-client--timer nil "The timer that comes back.")
(defvar abx-client--soon nil "The timer that asks for the list.")
(defvar abx-client--refreshing nil "Whether the list is being asked for.")
(defvar abx-client--again nil "Whether it has to be asked for again.")
(defvar abx-client--refresh-waiting nil "Callbacks of the next list.")
(defvar abx-client--ops nil "Alist from ids of operations to sessions' names.")
(defvar abx-client--op-count 0 "Operations so far.")
(defvar abx-client--progress nil "Alist from sessions' names to a line.")
(defvar abx-client--generation 0 "Raised by every reset.")

;;; Places

(defun abx-client--variable (name)
  "Value of the environment variable NAME; nil if it is empty."
  (let ((value (getenv name)))
    (and value (not (string-empty-p value)) value)))

(defun abx-client--hash (text)
  "The 64-bit FNV-1a hash of TEXT, in 16 hexadecimal digits."
  (let ((hash #xcbf29ce484222325))
    (mapc (lambda (byte)
            (setq hash (logand (* (logxor hash byte) #x100000001b3)
                               #xffffffffffffffff)))
          (encode-coding-string text 'utf-8-emacs-unix))
    (format "%016x" hash)))

(defun abx-client--bindable (path named)
  "PATH itself if every system can bind it, else a short one made from NAMED."
  (if (<= (string-bytes path) abx-client--max-socket)
      path
    (format "/tmp/abx-%d/%s.sock" (user-uid) (abx-client--hash named))))

(defun abx-client-socket ()
  "Where the daemon listens, by the rules of abx itself."
  (let* ((default-directory (if (file-remote-p default-directory) "~/" default-directory))
         (chosen (or abx-socket (abx-client--variable "ABX_SOCKET"))))
    (if chosen
        (let ((path (expand-file-name chosen)))
          (abx-client--bindable path path))
      (let ((home (directory-file-name
                   (file-truename (or abx-home (abx-client--variable "ABX_HOME") "~/.abx")))))
        (abx-client--bindable (concat home "/daemon.sock") home)))))

(defun abx-client-argv (&rest arguments)
  "Command line of abx with ARGUMENTS, for this home and socket, as a list.
No shell ever sees it."
  (append (list abx-program)
          (and abx-home (list "--home" (expand-file-name abx-home)))
          (and abx-socket (list "--socket" (expand-file-name abx-socket)))
          arguments))

;;; Errors

(defun abx-client--failure (kind message &optional hint)
  "An error of KIND with MESSAGE and HINT."
  (list :kind kind :message message :hint hint))

(defun abx-client--clean (text)
  "TEXT in one line, without what would move a cursor."
  (replace-regexp-in-string "[[:cntrl:]]+" " " (format "%s" (or text ""))))

(defun abx-client-error-text (err)
  "ERR for the user."
  (string-join
   (append
    (list (concat "abx: " (abx-client--clean (plist-get err :message))))
    (mapcar (lambda (cause) (concat "Caused by: " (abx-client--clean cause)))
            (append (plist-get err :causes) nil))
    (let ((hint (or (plist-get err :hint)
                    (and (equal (plist-get err :kind) "engine_unavailable")
                         "start Docker or Podman, then try again; `abx doctor' says where abx looked"))))
      (and hint (list (concat "Hint: " (abx-client--clean hint))))))
   "\n"))

(defun abx-client--gone ()
  "The error of a request whose connection ended."
  (abx-client--failure "disconnected" "abxd closed the connection before it answered"
                     "what was begun goes on; look at the list"))

(defun abx-client-no-program ()
  "An error if there is no program abx, else nil."
  (unless (let ((default-directory "/")) (executable-find abx-program))
    (abx-client--failure "no_abx" (format "there is no program `%s'" abx-program)
                       "install abx, or set `abx-program' to its path")))

;;; Telling

(defun abx-client--call (function &rest arguments)
  "Call FUNCTION with ARGUMENTS; its errors are shown and end nothing else."
  (condition-case err
      (apply function arguments)
    (error (message "abx: %s" (error-message-string err)))))

(defun abx-client--run (hook &rest arguments)
  "Call the functions of HOOK with ARGUMENTS."
  (apply #'run-hook-wrapped hook
         (lambda (function &rest rest)
           (apply #'abx-client--call function rest)
           nil)
         arguments))

(defun abx-client--set-phase (phase &optional problem)
  "Note that the link is in PHASE, because of PROBLEM."
  (setq abx-client--phase phase abx-client--problem problem)
  (abx-client--run 'abx-state-hook))

(defun abx-sessions ()
  "The sessions as last listed, newest first: plists."
  abx-client--sessions)

(defun abx-session (name)
  "The session of this NAME, or of this sandbox; nil if there is none."
  (or (seq-find (lambda (s) (equal (plist-get s :name) name)) abx-client--sessions)
      (seq-find (lambda (s) (equal (plist-get s :sandbox) name)) abx-client--sessions)))

(defun abx-client-progress (name)
  "The line that an operation on the session NAME said last."
  (cdr (assoc name abx-client--progress)))

(defun abx-client--take (sessions)
  "Take the list SESSIONS as the newest."
  (let ((before abx-client--sessions)
        (first (not abx-client--loaded)))
    (setq abx-client--sessions sessions abx-client--loaded t)
    (abx-client--run 'abx-sessions-hook)
    (unless first
      (dolist (session sessions)
        (let* ((id (plist-get session :id))
               (old (seq-find (lambda (s) (equal (plist-get s :id) id)) before))
               (was (plist-get old :attention)))
          (unless (equal was (plist-get session :attention))
            (abx-client--run 'abx-attention-functions session was)))))))

;;; Requests

(defun abx-client--params (params)
  "PARAMS without what is nil: absent is what it means."
  (cl-loop for (key value) on params by #'cddr
           when value append (list key value)))

(defun abx-client--unbegun-p (data)
  "Return non-nil if nothing was begun, by the DATA of an error.
What is false comes as :json-false, and what is absent as nil."
  (and (equal (plist-get data :kind) "shutting_down")
       (plist-member data :begun)
       (memq (plist-get data :begun) '(nil :json-false :false))))

(defun abx-client--send (method params callback)
  "Call METHOD with PARAMS on the connection; CALLBACK gets (error result), once."
  (let* ((cell (list callback))
         (settle (lambda (err result)
                   (when (car cell)
                     (let ((each (car cell)))
                       (setcar cell nil)
                       (setq abx-client--pending (delq cell abx-client--pending))
                       (abx-client--call each err result))))))
    (push cell abx-client--pending)
    (condition-case err
        (jsonrpc-async-request
         abx-client--connection (intern method) (abx-client--params params)
         :timeout nil
         :success-fn (lambda (result) (funcall settle nil result))
         :error-fn (lambda (err)
                     (let ((data (plist-get err :data)))
                       (funcall settle
                                (cond
                                 ((eql (plist-get err :code) -1) (abx-client--gone))
                                 ((abx-client--unbegun-p data)
                                  (abx-client--failure "shutting_down"
                                                       "abxd is stopping, and has begun nothing"
                                                       "do it again: the next abxd is asked"))
                                 (t
                                  (list :code (plist-get err :code)
                                        :kind (or (plist-get data :kind)
                                                  ;; JSON-RPC's own, without a kind of its own.
                                                  (and (eql (plist-get err :code) -32601)
                                                       "method_not_found")
                                                  "internal")
                                        :message (plist-get err :message)
                                        :hint (plist-get data :hint)
                                        :causes (plist-get data :causes))))
                                nil))))
      (error (ignore err)
             (funcall settle (abx-client--gone) nil)))))

(defun abx-request (method params &optional callback)
  "Call METHOD of the daemon with PARAMS, a plist.
CALLBACK gets (error result).  The daemon is started if need be.
An error is a plist with :kind, :message, :hint and :causes."
  (let ((callback (or callback #'ignore)))
    (abx-client-ensure
     (lambda (err)
       (if err
           (funcall callback err nil)
         (abx-client--send
          method params
          (lambda (err result)
            ;; A daemon that tells no events is asked what became of it.
            (unless (or abx-client--events (not (string-prefix-p "session." method)))
              (abx-client--refresh-soon))
            (funcall callback err result))))))))

(defun abx-client-operate (method name params callback)
  "As `abx-request' with METHOD, PARAMS and CALLBACK.
For a method that tells its progress, which is shown with the session NAME."
  (let ((op (format "emacs-%d-%d" (emacs-pid) (cl-incf abx-client--op-count))))
    (push (cons op name) abx-client--ops)
    (abx-request
     method (append params (list :op op))
     (lambda (err result)
       (setq abx-client--ops (assoc-delete-all op abx-client--ops)
             abx-client--progress (assoc-delete-all name abx-client--progress))
       (abx-client--refresh-soon)
       (funcall callback err result)))))

;;; The list

(defun abx-refresh (&optional callback)
  "Ask for the sessions; CALLBACK gets (error sessions).
A call while one is under way is answered by the next one."
  (when callback
    (setq abx-client--refresh-waiting (append abx-client--refresh-waiting (list callback))))
  (cond
   (abx-client--refreshing (setq abx-client--again t))
   ((not (eq abx-client--phase 'ready))
    (abx-client-ensure
     (lambda (err)
       (cond
        (err (let ((waiting abx-client--refresh-waiting))
               (setq abx-client--refresh-waiting nil)
               (dolist (each waiting) (abx-client--call each err nil))))
        (abx-client--refresh-waiting (abx-refresh))))))
   (t
    (let ((waiting abx-client--refresh-waiting))
      (setq abx-client--refreshing t abx-client--again nil abx-client--refresh-waiting nil)
      (abx-client--send
       "session.list" nil
       (lambda (err list)
         (setq abx-client--refreshing nil)
         (unless err
           (setq list (append list nil))
           (abx-client--take list))
         (dolist (each waiting) (abx-client--call each err list))
         (when (and (or abx-client--again abx-client--refresh-waiting)
                    (eq abx-client--phase 'ready))
           (abx-refresh))))))))

(defun abx-client--refresh-soon ()
  "Ask for the list in a moment, once for all that happens until then."
  (unless abx-client--soon
    (setq abx-client--soon
          (run-at-time abx-client--gather nil
                       (lambda ()
                         (setq abx-client--soon nil)
                         (when (eq abx-client--phase 'ready)
                           (abx-refresh)))))))

;;; Events

(defun abx-client--subscribe (callback)
  "Follow events after the last one that was seen; CALLBACK gets an error.
A daemon without events is of use all the same.  One that refuses them has
some, and a link without them would look alive and miss all that happens."
  (abx-client--send "event.subscribe" (list :since abx-client--seq)
                    (lambda (err _)
                      (setq abx-client--events (not err))
                      (funcall callback
                               (unless (equal (plist-get err :kind) "method_not_found") err)))))

(defun abx-client--event (event)
  "Take note of EVENT."
  (let ((kind (plist-get event :kind)))
    (cond
     ((equal kind "progress")
      (let* ((step (plist-get event :data))
             (name (cdr (assoc (plist-get step :op) abx-client--ops))))
        (when name
          (setf (alist-get name abx-client--progress nil nil #'equal) (plist-get step :text))
          (abx-client--run 'abx-sessions-hook)))
      (abx-client--run 'abx-event-functions event))
     ((equal kind "subscribed")
      (setq abx-client--seq (plist-get event :seq))
      (abx-client--refresh-soon)
      (when (> (or (plist-get (plist-get event :data) :missed) 0) 0)
        (abx-client--run 'abx-event-functions event)))
     ((equal kind "lagged")
      ;; It is closed; another one goes on from what was seen.
      (let* ((connection abx-client--connection)
             (timer (abx-client--limit connection)))
        (abx-client--subscribe
         (lambda (problem)
           (cancel-timer timer)
           (when problem (abx-client--give-up connection problem)))))
      (abx-client--refresh-soon))
     (t
      (when (plist-get event :seq)
        (setq abx-client--seq (max (or abx-client--seq 0) (plist-get event :seq))))
      (abx-client--refresh-soon)
      (abx-client--run 'abx-event-functions event)))))

;;; The link

(defun abx-client--foreign (path)
  "An error where the socket PATH, or its directory, is another user's.
Whoever owns one of them chooses who listens there; root may be trusted.
To be asked once connected, before anything is sent."
  (cl-loop for each in (list path (file-name-directory path))
           for owner = (file-attribute-user-id (file-attributes (file-truename each)))
           unless (memql owner (list 0 (user-uid)))
           return (abx-client--failure
                   "daemon_unreachable"
                   (if owner
                       (format "%s belongs to user %s, not to this one" (directory-file-name each) owner)
                     (format "cannot tell to whom %s belongs" (directory-file-name each)))
                   "use a home of your own: set `abx-home', or ABX_HOME")))

(defun abx-client--settle (&optional err)
  "Tell those who wait for the link that it is there, or ERR."
  (let ((waiting (reverse abx-client--waiting)))
    (setq abx-client--waiting nil)
    (dolist (each waiting) (abx-client--call each err))))

(defun abx-client--failed (err)
  "There is no link, because of ERR.
Whoever was connected once wants to be again."
  (abx-client--set-phase (if abx-client--server 'lost 'off) err)
  (when (and (eq abx-client--phase 'lost) (not abx-client--timer))
    (setq abx-client--timer
          (run-at-time abx-client--pause nil
                       (lambda ()
                         (setq abx-client--timer nil)
                         (when (eq abx-client--phase 'lost)
                           (abx-client--connect nil))))
          abx-client--pause (min (* 2 abx-client--pause) (cdr abx-client--pauses))))
  (abx-client--settle err))

(defun abx-client--sweep (connection buffer)
  "Kill BUFFER and other buffers of the library for CONNECTION."
  (dolist (each (list buffer (jsonrpc-stderr-buffer connection)
                      (jsonrpc-events-buffer connection)))
    (when (buffer-live-p each) (kill-buffer each))))

(defun abx-client--drop ()
  "End the connection without a word, and all that waits for it."
  (when abx-client--soon (cancel-timer abx-client--soon))
  (let ((connection abx-client--connection)
        (process abx-client--process)
        (pending abx-client--pending))
    (setq abx-client--connection nil abx-client--process nil abx-client--pending nil
          abx-client--refreshing nil abx-client--soon nil)
    (when connection
      (delete-process process)
      ;; After the library's own last words, which it writes into one of them.
      (run-at-time 0 nil #'abx-client--sweep connection (process-buffer process)))
    (dolist (cell pending)
      (let ((callback (car cell)))
        (setcar cell nil)
        (when callback (abx-client--call callback (abx-client--gone) nil))))))

(defun abx-client--closed (connection)
  "Take note of the end of CONNECTION."
  (when (eq connection abx-client--connection)
    (abx-client--drop)
    (setq abx-client--server (or abx-client--server '(:version "?")))
    (abx-client--failed (abx-client--failure "disconnected" "abxd closed the connection"))))

(defun abx-client--give-up (connection problem)
  "End CONNECTION because of PROBLEM.  One that has ended has told its own."
  (when (and connection (eq connection abx-client--connection))
    (abx-client--drop)
    (abx-client--failed problem)))

(defun abx-client--limit (connection)
  "A timer that gives up CONNECTION as one that does not answer."
  (run-at-time abx-client--answer-limit nil
               (lambda ()
                 (abx-client--give-up
                  connection
                  (abx-client--failure "daemon_unreachable" "abxd does not answer"
                                       "run: abx daemon restart")))))

(defun abx-client--greet ()
  "Greet, follow events and get the list; then the link is ready."
  (let* ((connection abx-client--connection)
         (timer (abx-client--limit connection)))
    (abx-client--send
     "daemon.hello"
     (list :client "emacs" :version abx-client-version :protocol abx-client-protocol)
     (lambda (err server)
       (cond
        ((not (eq connection abx-client--connection)))
        (err (abx-client--give-up connection err))
        ((/= (plist-get server :protocol) abx-client-protocol)
         (abx-client--give-up
          connection
          (abx-client--failure
           "protocol"
           (format "abxd %s speaks protocol %s, this client %s" (plist-get server :version)
                   (plist-get server :protocol) abx-client-protocol)
           "bring the older of the two up to date; then: abx daemon restart")))
        (t
         (setq abx-client--server server)
         (abx-client--subscribe
          (lambda (problem)
            (if problem
                (abx-client--give-up connection problem)
              (abx-client--send
               "session.list" nil
               (lambda (problem list)
                 (if problem
                     (abx-client--give-up connection problem)
                   (cancel-timer timer)
                   (setq abx-client--pause (car abx-client--pauses)
                         abx-client--progress nil)
                   (abx-client--set-phase 'ready)
                   (abx-client--take (append list nil))
                   (abx-client--settle)))))))))))))

(defun abx-client--open (path)
  "A connection to PATH.  Signals `file-error' when nobody answers there."
  (let* ((process (make-network-process :name "abx" :family 'local :service path
                                        :coding 'utf-8-emacs-unix :noquery t))
         (silent (if (memq '-events-buffer-config
                           (mapcar #'eieio-slot-descriptor-name
                                   (eieio-class-slots 'jsonrpc-process-connection)))
                     '(:events-buffer-config (:size 0))
                   '(:events-buffer-scrollback-size 0)))
         (connection (apply #'make-instance 'jsonrpc-process-connection
                            ;; The library names buffers after it, which must not be shared.
                            :name (format " abx %d" (cl-incf abx-client--count))
                            :process process
                            :notification-dispatcher
                            (lambda (connection method params)
                              (when (and (eq connection abx-client--connection)
                                         (eq method 'event))
                                (abx-client--call #'abx-client--event params)))
                            :on-shutdown #'abx-client--closed
                            silent)))
    ;; The library tells every end of a connection in the echo area; a
    ;; restart of the daemon is nothing to interrupt the user for.
    (add-function :around (process-sentinel process)
                  (lambda (sentinel &rest arguments)
                    (let ((inhibit-message t) (message-log-max nil))
                      (apply sentinel arguments))))
    (setq abx-client--process process)
    connection))

(defun abx-client-start-daemon (callback)
  "Start the daemon; CALLBACK gets an error or nil."
  (if-let ((missing (abx-client-no-program)))
      (funcall callback missing)
    (let* ((default-directory (expand-file-name "~/"))
           (out (generate-new-buffer " *abx daemon start*"))
           (errors (generate-new-buffer " *abx daemon start errors*"))
           timer)
      (make-process
       :name "abx daemon start" :buffer out :stderr errors :noquery t
       :connection-type 'pipe
       :command (abx-client-argv "daemon" "start" "--json")
       :sentinel
       (lambda (process _)
         (unless (process-live-p process)
           (when timer (cancel-timer timer))
           (let ((said (ignore-errors
                         (with-current-buffer out
                           (goto-char (point-min))
                           (json-parse-buffer :object-type 'plist :null-object nil))))
                 (words (with-current-buffer errors (string-trim (buffer-string))))
                 (code (process-exit-status process)))
             (when-let ((reader (get-buffer-process errors)))
               (set-process-sentinel reader #'ignore)
               (delete-process reader))
             (kill-buffer out)
             (kill-buffer errors)
             (funcall callback
                      (unless (eql code 0)
                        (list :kind "daemon_unreachable"
                              :message (or (plist-get said :message)
                                           (format "abxd did not start: %s"
                                                   (if (string-empty-p words)
                                                       (format "abx ended with %s" code)
                                                     words)))
                              :hint (or (plist-get (plist-get said :data) :hint)
                                        "run: abx doctor")
                              :causes (plist-get (plist-get said :data) :causes))))))))
      (when-let ((reader (get-buffer-process errors)))
        (set-process-query-on-exit-flag reader nil)
        (set-process-sentinel reader #'ignore))
      (setq timer (run-at-time abx-client--start-limit nil
                               (lambda ()
                                 (when-let ((process (get-buffer-process out)))
                                   (delete-process process))))))))

(defun abx-client--attempt (started)
  "Try to connect, after the daemon was started if STARTED."
  (let ((generation abx-client--generation)
        (path (abx-client-socket)))
    (condition-case err
        (progn
          (setq abx-client--connection (abx-client--open path))
          (if-let ((foreign (abx-client--foreign path)))
              (progn (abx-client--drop)
                     (abx-client--failed foreign))
            (abx-client--greet)))
      (file-error
       (cond
        ((or started (not abx-client--may-start))
         (abx-client--failed
          (abx-client--failure "daemon_unreachable"
                             (format "nobody answers on %s (%s)" path
                                     (error-message-string err))
                             "run: abx daemon start")))
        (t
         (abx-client-start-daemon
          (lambda (problem)
            (when (eql generation abx-client--generation)
              (if problem
                  (abx-client--failed problem)
                (abx-client--attempt t)))))))))))

(defun abx-client--connect (may-start)
  "Make the link, starting the daemon for it if MAY-START."
  (if (eq abx-client--phase 'connecting)
      (setq abx-client--may-start (or abx-client--may-start may-start))
    (setq abx-client--may-start may-start)
    (abx-client--set-phase 'connecting)
    (abx-client--attempt nil)))

(defun abx-client-ensure (callback)
  "Make the link if need be; CALLBACK gets an error or nil."
  (if (eq abx-client--phase 'ready)
      (funcall callback nil)
    (push callback abx-client--waiting)
    (abx-client--connect abx-autostart)))

(defun abx-client-look (&optional callback)
  "Make the link to a running daemon, and start none.
CALLBACK gets an error or nil."
  (if (eq abx-client--phase 'ready)
      (when callback (funcall callback nil))
    (when callback (push callback abx-client--waiting))
    (abx-client--connect nil)))

(defun abx-client-reset ()
  "End the link and forget everything, such as after a change of settings."
  (cl-incf abx-client--generation)
  (when abx-client--timer (cancel-timer abx-client--timer))
  (abx-client--drop)
  (let ((waiting abx-client--waiting))
    (setq abx-client--server nil abx-client--sessions nil abx-client--loaded nil
          abx-client--seq nil abx-client--waiting nil abx-client--timer nil
          abx-client--pause (car abx-client--pauses) abx-client--ops nil
          abx-client--progress nil abx-client--again nil abx-client--refresh-waiting nil)
    (dolist (each waiting)
      (abx-client--call each (abx-client--failure "disconnected" "the link to abxd was ended"))))
  (abx-client--set-phase 'off))

(provide 'abx-client)
;;; abx-client.el ends here

-- The link to the daemon: found, started, lost, found again.
local h = harness
local abx = require('abx')
local client = require('abx.client')
local place = require('abx.place')

local function setup(settings)
  abx.setup(vim.tbl_extend('force', { abx = vim.env.ABX_TEST_ABX, connect = false }, settings or {}))
end

h.test('a program that is not there is an error with a hint', function()
  setup({ abx = '/no/such/abx' })
  local err = h.call(abx.refresh)
  h.equal(err.kind, 'no_abx')
  h.matches(err.hint, 'setup')
  h.equal((h.call(abx.attach, 'x', {})).kind, 'no_abx')
end)

h.test('without autostart no daemon is started, and the hint says what starts it', function()
  setup({ autostart = false })
  local err = h.call(abx.refresh)
  h.equal(err.kind, 'daemon_unreachable')
  h.matches(err.hint, 'abx daemon start')
  h.equal(client.phase(), 'off')
  h.equal(abx.statusline(), '')
end)

h.test('a daemon that cannot start says why', function()
  local file = vim.env.ABX_TEST_DIR .. '/a-file'
  vim.fn.writefile({}, file)
  setup({ home = file })
  local err = h.call(abx.refresh)
  h.equal(err.kind, 'daemon_unreachable')
  h.matches(err.message, '%a')
  assert(err.hint, 'a hint')
end)

h.test('setup with no daemon is quiet and starts none', function()
  setup({ connect = true })
  h.wait('the look to end', function()
    return client.phase() == 'off'
  end)
  h.equal(h.notes, {})
end)

h.test('a command starts the daemon', function()
  setup()
  h.equal(h.get(abx.refresh), {})
  h.equal(client.phase(), 'ready')
  h.matches(client.server().version, '%d')
end)

h.test('the socket is where the daemon says that it is', function()
  h.equal(place.socket(), (h.get(abx.request, 'daemon.info', nil)).socket)
  -- Known answers of FNV-1a with 64 bits.
  h.equal(place.hash(''), 'cbf29ce484222325')
  h.equal(place.hash('a'), 'af63dc4c8601ec8c')
  h.equal(place.hash('foobar'), '85944171f73967e8')
end)

h.test('the socket of a deep home is the short one that abx computes', function()
  local deep = vim.env.ABX_TEST_DIR .. '/' .. ('d'):rep(100)
  setup({ home = deep })
  local out = vim.fn.system({ vim.env.ABX_TEST_ABX, '--home', deep, '--no-autostart', 'ls' })
  assert(out:find(place.socket(), 1, true), out .. ' does not name ' .. place.socket())
end)

h.test('unknown verbs and wrong uses say what is right', function()
  setup()
  vim.cmd('Abx dance')
  h.noticed("no ':Abx dance'")
  vim.cmd('Abx fork a')
  h.noticed('usage: :Abx fork NAME NEW')
  vim.cmd('Abx start x timeout=soon')
  h.noticed("'soon' is no duration")
  vim.cmd('Abx stop nobody')
  h.equal(h.noticed('nobody').level, vim.log.levels.ERROR)
end)

-- A daemon that is none: answers each request with what `answer(request)` gives, if that is anything.
-- `answer(request, tell)`: what `tell` is given comes behind the answer, as an event.
local function pretend(name, answer)
  local path = vim.env.ABX_TEST_DIR .. '/' .. name
  local server = vim.loop.new_pipe(false)
  assert(server:bind(path))
  local peers = {}
  server:listen(8, function()
    local peer = vim.loop.new_pipe(false)
    server:accept(peer)
    peers[#peers + 1] = peer
    peer:read_start(function(_, chunk)
      for line in (chunk or ''):gmatch('[^\n]+') do
        local request = vim.json.decode(line)
        local events = {}
        local said = answer(request, function(event)
          events[#events + 1] = event
        end)
        if said then
          said.jsonrpc, said.id = '2.0', request.id
          peer:write(vim.json.encode(said) .. '\n')
        end
        for _, event in ipairs(events) do
          peer:write(vim.json.encode({ jsonrpc = '2.0', method = 'event', params = event }) .. '\n')
        end
      end
    end)
  end)
  return path, function()
    abx.setup({ connect = false })
    for _, peer in ipairs(peers) do
      peer:close()
    end
    server:close()
  end
end

h.test('a daemon that does not answer holds up nobody for long, whatever it was asked', function()
  local usual = client.ANSWER_LIMIT
  h.equal(usual, 10000)
  client.ANSWER_LIMIT = 200
  local answers = {
    ['daemon.hello'] = { server = 'abxd', version = '0.1.0', protocol = 1, pid = 1, home = '/' },
    ['event.subscribe'] = 1,
    ['session.list'] = {},
  }
  for number, mute in ipairs({ 'daemon.hello', 'event.subscribe', 'session.list' }) do
    local path, stop = pretend('mute' .. number, function(request)
      if request.method ~= mute then
        return { result = answers[request.method] }
      end
    end)
    setup({ socket = path })
    local err = h.call(abx.refresh)
    h.equal(err.message, 'abxd does not answer')
    h.matches(err.hint, 'abx daemon restart')
    stop()
  end
  client.ANSWER_LIMIT = usual
end)

h.test('a daemon that does not answer who fell behind is left', function()
  local usual = client.ANSWER_LIMIT
  local hellos, subscriptions = 0, 0
  local path, stop = pretend('lagging', function(request, tell)
    if request.method == 'daemon.hello' then
      hellos = hellos + 1
      return { result = { server = 'abxd', version = '0.1.0', protocol = 1, pid = 1, home = '/' } }
    elseif request.method == 'event.subscribe' then
      subscriptions = subscriptions + 1
      if subscriptions == 1 then
        tell({ subscription = 1, kind = 'lagged', seq = 4, data = { missed = 1 } })
      end
      return subscriptions ~= 2 and { result = 1 } or nil
    end
    return { result = {} }
  end)
  setup({ socket = path })
  client.ANSWER_LIMIT = 200
  h.call(abx.refresh)
  h.wait('another link', function()
    return hellos == 2 and client.phase() == 'ready'
  end)
  client.ANSWER_LIMIT = usual
  stop()
end)

h.test('a daemon of another protocol is refused with what to do', function()
  local path, stop = pretend('newer', function()
    return { result = { server = 'abxd', version = '9.0.0', protocol = 9, pid = 1, home = '/' } }
  end)
  setup({ socket = path })
  local err = h.call(abx.refresh)
  h.equal(err.kind, 'protocol')
  h.matches(err.message, 'abxd 9.0.0 speaks protocol 9, this client 1')
  stop()
end)

h.test('a socket of another user, or in a directory of another, gets nothing', function()
  if vim.loop.getuid() ~= 0 then
    return
  end
  local heard = 0
  local dir = vim.env.ABX_TEST_DIR .. '/theirs'
  vim.fn.mkdir(dir)
  local path, stop = pretend('theirs/s', function()
    heard = heard + 1
  end)
  for _, each in ipairs({ path, dir }) do
    assert(vim.loop.fs_chown(each, 65534, 65534))
    setup({ socket = path })
    local err = h.call(abx.refresh)
    h.equal(err.kind, 'daemon_unreachable')
    h.equal(err.message, each .. ' belongs to user 65534, not to this one')
    h.matches(err.hint, 'ABX_HOME')
    assert(vim.loop.fs_chown(each, 0, 0))
  end
  h.equal(heard, 0)
  stop()
end)

h.test('what a daemon that stops has not begun is said in one plain line', function()
  local begun = false
  local path, stop = pretend('leaving', function(request)
    if request.method == 'daemon.hello' then
      return { result = { server = 'abxd', version = '0.1.0', protocol = 1, pid = 1, home = '/' } }
    elseif request.method == 'session.stop' then
      local data = { kind = 'shutting_down', begun = begun }
      return { error = { code = 21, message = 'the daemon is stopping', data = data } }
    end
    return { result = {} }
  end)
  setup({ socket = path })
  local err = h.call(abx.stop, 'x')
  h.equal(err.kind, 'shutting_down')
  h.equal(err.message, 'abxd is stopping, and has begun nothing')
  h.matches(err.hint, 'do it again')
  begun = true
  h.equal((h.call(abx.stop, 'x')).message, 'the daemon is stopping')
  stop()
end)

h.test('a daemon without events is asked again after each command', function()
  local lists = 0
  local path, stop = pretend('older', function(request)
    if request.method == 'daemon.hello' then
      return { result = { server = 'abxd', version = '0.0.9', protocol = 1, pid = 1, home = '/' } }
    elseif request.method == 'session.list' then
      lists = lists + 1
      return { result = {} }
    elseif request.method == 'session.stop' then
      return { result = { name = 'x' } }
    end
    return { error = { code = -32601, message = 'Method not found' } }
  end)
  setup({ socket = path })
  h.get(abx.refresh)
  local before = lists
  h.get(abx.stop, 'x')
  h.wait('another list', function()
    return lists > before
  end)
  stop()
end)

-- A daemon that refuses one method for a while with an error of this kind, and counts greetings and subscriptions.
local function refusing(name, method, kind)
  local seen = { hellos = 0, subscriptions = 0, refuses = true }
  local path, stop = pretend(name, function(request, tell)
    if request.method == 'daemon.hello' then
      seen.hellos = seen.hellos + 1
      return { result = { server = 'abxd', version = '0.1.0', protocol = 1, pid = 1, home = '/' } }
    elseif request.method == method and seen.refuses then
      return { error = { code = 17, message = 'not now', data = { kind = kind } } }
    elseif request.method == 'event.subscribe' then
      seen.subscriptions = seen.subscriptions + 1
      tell({ kind = 'subscribed', seq = seen.subscriptions, data = {} })
      return { result = seen.subscriptions }
    elseif request.method == 'session.rename' then
      tell({ kind = 'lagged', seq = 5, data = {} })
      return { result = {} }
    end
    return { result = {} }
  end)
  return path, stop, seen
end

for _, case in ipairs({ { 'session.list', 'internal' }, { 'event.subscribe', 'limit' } }) do
  local method, kind = unpack(case)
  h.test(('a link that is refused %s says so, and is made again'):format(method), function()
    local path, stop, seen = refusing('r-' .. kind, method, kind)
    setup({ socket = path })
    h.equal((h.call(abx.refresh)).kind, kind)
    h.wait('the loss', function()
      return client.phase() == 'lost'
    end)
    h.wait('another attempt', function()
      return seen.hellos > 1
    end)
    seen.refuses = false
    h.wait('the link', function()
      return client.phase() == 'ready'
    end)
    h.equal(seen.subscriptions > 0, true)
    stop()
  end)
end

h.test('who fell behind and may not subscribe again connects again', function()
  local path, stop, seen = refusing('lagging', 'event.subscribe', 'limit')
  seen.refuses = false
  setup({ socket = path })
  h.get(abx.refresh)
  seen.refuses = true
  h.get(abx.request, 'session.rename', {})
  h.wait('the loss', function()
    return client.phase() == 'lost'
  end)
  seen.refuses = false
  h.wait('the link', function()
    return client.phase() == 'ready'
  end)
  h.equal(seen.subscriptions, 2)
  stop()
end)

h.test('an engine that is away is an error with a hint, and the session leaves no trace', function()
  local was = vim.env.DOCKER_HOST
  vim.env.DOCKER_HOST = 'unix:///no/such/engine.sock'
  local home = vim.env.ABX_TEST_DIR .. '/away'
  setup({ home = home })
  local err = h.call(abx.start, 'nowhere', {})
  h.equal(err.kind, 'engine_unavailable')
  h.matches(require('abx.text').failure(err), 'Hint: ')
  h.equal(h.get(abx.refresh), {})
  vim.cmd('checkhealth abx')
  h.matches(h.text(0), 'engine docker: unavailable')
  vim.cmd('bwipeout!')
  vim.env.DOCKER_HOST = was
  h.abx('--home', home, 'daemon', 'stop')
  setup()
end)

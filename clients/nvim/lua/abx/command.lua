--- The command :Abx.
local client = require('abx.client')
local text = require('abx.text')

local M = {}

-- How long completion may wait for the first list, in milliseconds; later ones come from what is known.
local COMPLETION_LIMIT = 500

local function usage(line)
  return { kind = 'usage', message = 'usage: :Abx ' .. line }
end

local function show(err)
  require('abx').show_error(err)
end

local function milliseconds(value)
  local ms = text.milliseconds(value)
  if not ms then
    return nil, ("'%s' is no duration; write 30m, 2h, 3d or 0"):format(value)
  end
  return ms
end

-- Options of start: how each value becomes a parameter.
local start_options = {
  agent = function(params, value) params.agent = value end,
  image = function(params, value) params.image = value end,
  template = function(params, value) params.template = value end,
  engine = function(params, value) params.engine = value end,
  workspace = function(params, value) params.workspace = value end,
  network = function(params, value) params.network = value end,
  profile = function(params, value) params.profile = value end,
  timeout = function(params, value)
    local ms, problem = milliseconds(value)
    params.timeout_ms = ms
    return problem
  end,
  idle = function(params, value)
    local ms, problem = milliseconds(value)
    params.idle_ms = ms
    return problem
  end,
  env = function(params, value)
    local key, given = value:match('^([^=]+)=(.*)$')
    key = key or value
    given = given or vim.env[key]
    if not given then
      return ("the environment has no '%s'"):format(key)
    end
    params.env = params.env or {}
    params.env[key] = given
  end,
  meta = function(params, value)
    local key, given = value:match('^([^=]+)=(.*)$')
    if not key then
      return ("meta=%s should be meta=KEY=VALUE"):format(value)
    end
    params.metadata = params.metadata or {}
    params.metadata[key] = given
  end,
}

-- Splits `key=value` words that are options from the rest.
local function split(words, known)
  local plain, options = {}, {}
  for _, word in ipairs(words) do
    local key, value = word:match('^(%a+)=(.*)$')
    if key and known[key] then
      options[#options + 1] = { key, value }
    else
      plain[#plain + 1] = word
    end
  end
  return plain, options
end

local function start(args)
  local plain, options = split(args, start_options)
  if #plain ~= 1 then
    return usage('start NAME [image=I] [agent=A] [template=T] [workspace=DIR[:TARGET][:ro]] [timeout=D] [idle=D] [env=K=V]')
  end
  local params = {}
  for _, option in ipairs(options) do
    local problem = start_options[option[1]](params, option[2])
    if problem then
      return { kind = 'usage', message = problem }
    end
  end
  require('abx').start(plain[1], params)
end

local attach_options = { terminal = true, open = true }

-- The words of a program's command line. What stands in '...' is taken as it is; in "...", a backslash takes the meaning of
-- a quote or a backslash; outside, also that of a space. Nothing else has a meaning: no shell reads it. Gives nil where a
-- quote does not end.
local function quoted_words(line)
  local words, word, quote = {}, nil, nil
  local at = 1
  while at <= #line do
    local char, following = line:sub(at, at), line:sub(at + 1, at + 1)
    if char == '\\' and quote ~= "'" and following:match(quote and '["\\]' or '[%s\\\'"]') then
      word, at = (word or '') .. following, at + 1
    elseif quote then
      if char == quote then
        quote = nil
      else
        word = word .. char
      end
    elseif char == "'" or char == '"' then
      word, quote = word or '', char
    elseif char:match('%s') then
      words[#words + 1] = word
      word = nil
    else
      word = (word or '') .. char
    end
    at = at + 1
  end
  words[#words + 1] = word
  return not quote and words or nil
end

local function attach(args, _, line)
  local words, command = {}, {}
  local rest = false
  for _, word in ipairs(args) do
    if rest then
      command[#command + 1] = word
    elseif word == '--' then
      rest = true
    else
      words[#words + 1] = word
    end
  end
  -- Quotes have a meaning in the command alone: in a name they are part of it.
  local typed = rest and line and line:match('[^\\]%s%-%-%s(.*)$')
  if typed then
    command = quoted_words(typed)
    if not command then
      return { kind = 'usage', message = 'a quote in the command does not end' }
    end
  end
  local plain, options = split(words, attach_options)
  local flags = { agent = true, fresh = true, ['read-only'] = true }
  local given = { cmd = command }
  local names = {}
  for index, word in ipairs(plain) do
    if index > 1 and flags[word] then
      given[word:gsub('-', '_')] = true
    else
      names[#names + 1] = word
    end
  end
  for _, option in ipairs(options) do
    given[option[1]] = option[2]
  end
  if #names ~= 1 then
    return usage('attach NAME [agent|fresh|read-only] [terminal=T] [open=split|vsplit|tab|current] [-- CMD...]')
  end
  require('abx').attach(names[1], given)
end

local function delete(args, bang)
  if #args ~= 1 then
    return usage('delete[!] NAME')
  end
  if bang then
    require('abx').delete(args[1])
    return
  end
  client.request('session.get', { name = args[1] }, function(err, session)
    if err then
      show(err)
    else
      require('abx.list').delete(session)
    end
  end)
end

-- A verb on one name.
local function simple(verb)
  return {
    names = { true },
    run = function(args)
      if #args ~= 1 then
        return usage(verb .. ' NAME')
      end
      require('abx')[verb](args[1])
    end,
  }
end

local function daemon(args)
  local verb = args[1]
  if verb == 'start' and #args == 1 then
    client.start_daemon(function(err)
      if err then
        show(err)
      else
        client.look(function(problem)
          if problem then
            show(problem)
          else
            vim.notify('abx: abxd runs')
          end
        end)
      end
    end)
  elseif verb == 'status' and #args == 1 then
    client.look(function(err)
      if err then
        show(err)
        return
      end
      client.request('daemon.info', nil, function(problem, info)
        if problem then
          show(problem)
          return
        end
        local lines = { ('abxd %s, process %d, %d sessions'):format(info.version, info.pid, info.sessions) }
        for _, engine in ipairs(info.engines) do
          lines[#lines + 1] = ('engine %s: %s %s'):format(engine.name, engine.health, text.clean(engine.problem or ''))
        end
        vim.notify(table.concat(lines, '\n'))
      end)
    end)
  else
    return usage('daemon start|status')
  end
end

local commands = {
  list = { run = function() require('abx').list() end },
  start = { run = start, options = start_options },
  attach = { names = { true }, run = attach, options = attach_options, words = { 'agent', 'fresh', 'read-only' } },
  detach = {
    run = function()
      if not require('abx.attach').detach(vim.api.nvim_get_current_buf()) then
        return { kind = 'usage', message = 'this buffer is no terminal of a session' }
      end
    end,
  },
  stop = simple('stop'),
  pause = simple('pause'),
  unpause = simple('unpause'),
  save = {
    names = { true },
    run = function(args)
      if #args < 1 or #args > 2 then
        return usage('save NAME [SNAPSHOT]')
      end
      require('abx').save(args[1], { snapshot = args[2] })
    end,
  },
  resume = {
    names = { true },
    run = function(args)
      if #args < 1 or #args > 2 then
        return usage('resume NAME [SNAPSHOT]')
      end
      require('abx').resume(args[1], { snapshot = args[2] })
    end,
  },
  fork = {
    names = { true },
    run = function(args)
      if #args < 2 or #args > 3 then
        return usage('fork NAME NEW [SNAPSHOT]')
      end
      require('abx').fork(args[1], args[2], { snapshot = args[3] })
    end,
  },
  rename = {
    names = { true },
    run = function(args)
      if #args ~= 2 then
        return usage('rename NAME NEW')
      end
      require('abx').rename(args[1], args[2])
    end,
  },
  delete = { names = { true }, run = delete },
  events = { names = { true }, run = function(args) require('abx').events(args[1]) end },
  daemon = { run = daemon, words = { 'start', 'status' } },
}

--- Carries out `:Abx ...`; without a word, opens the list.
function M.run(options)
  local args = vim.deepcopy(options.fargs)
  local verb = table.remove(args, 1) or 'list'
  local bang = options.bang
  if verb:sub(-1) == '!' then
    verb, bang = verb:sub(1, -2), true
  end
  local command = commands[verb]
  if not command then
    show({
      kind = 'usage',
      message = ("there is no ':Abx %s'"):format(verb),
      hint = 'one of: ' .. table.concat(M.verbs(), ', '),
    })
    return
  end
  local problem = command.run(args, bang, options.args)
  if problem then
    show(problem)
  end
end

--- The words after :Abx.
function M.verbs()
  local verbs = vim.tbl_keys(commands)
  table.sort(verbs)
  return verbs
end

-- The words of a command line; `\ ` is a space within one.
local function words_of(line)
  local words, word, escaped = {}, nil, false
  for char in line:gmatch('.') do
    if escaped then
      word, escaped = (word or '') .. char, false
    elseif char == '\\' then
      escaped = true
    elseif char:match('%s') then
      if word then
        words[#words + 1] = word
        word = nil
      end
    else
      word = (word or '') .. char
    end
  end
  words[#words + 1] = word or ''
  return words
end

local function names()
  if not client.loaded() then
    local done = false
    client.look(function()
      done = true
    end)
    vim.wait(COMPLETION_LIMIT, function()
      return done
    end, 5)
  end
  return require('abx').names()
end

--- What may follow.
function M.complete(_, line, position)
  local words = words_of(line:sub(1, position):gsub('^.-Abx!?', ''))
  -- The first is the rest of the command's own name: nothing.
  if words[1] == '' and #words > 1 then
    table.remove(words, 1)
  end
  local last = words[#words]
  local candidates = {}
  if #words == 1 then
    candidates = M.verbs()
  else
    local command = commands[(words[1]:gsub('!$', ''))] or {}
    if command.names and command.names[#words - 1] then
      candidates = names()
    else
      vim.list_extend(candidates, command.words or {})
      for option in pairs(command.options or {}) do
        candidates[#candidates + 1] = option .. '='
      end
      table.sort(candidates)
    end
  end
  local found = {}
  for _, candidate in ipairs(candidates) do
    if vim.startswith(candidate, last) then
      local escaped = candidate:gsub('[\\ \t]', '\\%0')
      found[#found + 1] = escaped
    end
  end
  return found
end

return M

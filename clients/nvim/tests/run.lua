-- Runs every tests/*_test.lua in this editor, in the order of their names, and ends it with 0 or 1.
local harness = { tests = {}, notes = {} }
_G.harness = harness

-- Longest wait for anything, in milliseconds: a limit, not a measure.
local LIMIT = 30000

local function write(text)
  io.stdout:write(text .. '\n')
  io.stdout:flush()
end

function harness.test(name, body)
  table.insert(harness.tests, { name = name, body = body })
end

--- Waits until `condition()` gives something true, and gives that.
function harness.wait(what, condition)
  local result
  local ok = vim.wait(LIMIT, function()
    result = condition()
    return result
  end, 10)
  if not ok then
    error('waited in vain for ' .. what, 2)
  end
  return result
end

--- Runs a function with a callback at its end, and gives what it is called with: error, result.
function harness.call(fn, ...)
  local args = { n = select('#', ...), ... }
  local done, err, result
  args[args.n + 1] = function(e, r)
    done, err, result = true, e, r
  end
  fn(unpack(args, 1, args.n + 1))
  harness.wait('an answer', function()
    return done
  end)
  return err, result
end

--- As call, for what must succeed.
function harness.get(fn, ...)
  local err, result = harness.call(fn, ...)
  if err then
    error(vim.inspect(err), 2)
  end
  return result
end

function harness.equal(got, want)
  if not vim.deep_equal(got, want) then
    error(('got %s, wanted %s'):format(vim.inspect(got), vim.inspect(want)), 2)
  end
end

function harness.matches(text, pattern)
  if not tostring(text):match(pattern) then
    error(('%s does not match %s'):format(vim.inspect(text), pattern), 2)
  end
end

--- Runs the command line to its end and gives what it printed.
function harness.abx(...)
  local out = vim.fn.system({ vim.env.ABX_TEST_ABX, ... })
  if vim.v.shell_error ~= 0 then
    error(('abx %s: %s'):format(table.concat({ ... }, ' '), out), 2)
  end
  return out
end

--- The text of a buffer.
function harness.text(buffer)
  return table.concat(vim.api.nvim_buf_get_lines(buffer, 0, -1, false), '\n')
end

-- What the user would have been shown.
harness.plain_notify = vim.notify
vim.notify = function(message, level)
  table.insert(harness.notes, { message = message, level = level })
end

--- Waits for a notice that matches.
function harness.noticed(pattern)
  return harness.wait('a notice like ' .. pattern, function()
    for _, note in ipairs(harness.notes) do
      if note.message:match(pattern) then
        return note
      end
    end
  end)
end

local files = vim.fn.glob('tests/*_test.lua', false, true)
table.sort(files)
for _, file in ipairs(files) do
  dofile(file)
end

local failures = 0
-- Parts of names, separated by commas: only these tests.
local only = vim.split(os.getenv('ABX_TEST_ONLY') or '', ',')
local function wanted(name)
  for _, part in ipairs(only) do
    if name:find(part, 1, true) then
      return true
    end
  end
  return false
end
for _, test in ipairs(harness.tests) do
  if wanted(test.name) then
    harness.notes = {}
    local ok, err = xpcall(test.body, debug.traceback)
    write(('%s %s'):format(ok and 'ok  ' or 'FAIL', test.name))
    if not ok then
      failures = failures + 1
      write(err)
      write('notices: ' .. vim.inspect(harness.notes))
    end
  end
end
write(('%d tests, %d failed'):format(#harness.tests, failures))
vim.cmd(failures == 0 and 'qall!' or 'cquit 1')

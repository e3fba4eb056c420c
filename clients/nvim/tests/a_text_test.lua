local h = harness
local text = require('abx.text')

h.test('durations read as those of abx ls', function()
  for seconds, want in pairs({ [0] = '0s', [59] = '59s', [60] = '1m', [3600] = '1h', [8040] = '2h 14m', [259200] = '3d' }) do
    h.equal(text.duration(seconds), want)
  end
  h.equal(text.milliseconds('30m'), 1800000)
  h.equal(text.milliseconds('3d'), 259200000)
  h.equal(text.milliseconds('90'), 90000)
  h.equal(text.milliseconds('soon'), nil)
end)

h.test('times are read in UTC, whatever the zone', function()
  h.equal(text.seconds('1970-01-01T00:00:00.000Z'), 0)
  h.equal(text.seconds('2026-02-01T10:20:30.123Z'), 1769941230)
  h.equal(text.seconds('2024-02-29T23:59:59.000Z'), 1709251199)
end)

h.test('what comes from a sandbox cannot break a line', function()
  h.equal(text.clean('a\27[31mb\nc'), 'a [31mb c')
  h.equal(text.pad('feature', 4), 'fea…')
  h.equal(text.attention({ attention = 'waiting', attention_note = 'may I\nrm?' }), 'waiting: may I rm?')
end)

h.test('an event is one line, with who did it', function()
  h.equal(
    text.event({
      at = '2026-02-01T10:20:30.123Z',
      kind = 'session.status',
      session = 'x',
      data = { from = 'starting', to = 'running' },
      by = { client = 'abx', pid = 7 },
    }),
    '10:20:30  session.status  x  starting -> running  by abx 7'
  )
end)

h.test('a hole in the events is told in words', function()
  h.equal(text.event({ kind = 'subscribed', seq = 7, data = { missed = 5 } }), '5 events are no longer kept')
end)

h.test('a wrong setting is named', function()
  local config = require('abx.config')
  local ok, err = pcall(config.set, { hom = '/x' })
  h.equal(ok, false)
  h.matches(err, "no setting 'hom'")
  ok, err = pcall(config.set, { autostart = 'yes' })
  h.equal(ok, false)
  h.matches(err, 'should be a boolean, not a string')
end)

h.test('an error of several lines is shown whole, also by the notices of Neovim itself', function()
  local err = { kind = 'x', message = 'it failed', causes = { 'the first', 'the second' }, hint = 'do it again' }
  local ours, echo, shown = vim.notify, vim.api.nvim_echo, {}
  vim.api.nvim_echo = function(chunks, history)
    shown = { chunks = chunks, history = history }
  end
  vim.notify = h.plain_notify
  local ok, problem = pcall(require('abx').show_error, err)
  vim.notify, vim.api.nvim_echo = ours, echo
  assert(ok, problem)
  h.equal(shown.history, true)
  h.equal(shown.chunks[1][1], 'abx: it failed\nCaused by: the first\nCaused by: the second\nHint: do it again')
  -- A plugin that shows notices in its own way gets it in one piece.
  require('abx').show_error(err)
  h.matches(h.notes[#h.notes].message, '\nHint: do it again$')
  h.equal(h.notes[#h.notes].level, vim.log.levels.ERROR)
end)

h.test('quotes keep the words of an attached command together, and stay in names', function()
  local abx, given = require('abx'), nil
  local attach = abx.attach
  abx.attach = function(name, options)
    given = { name, options.cmd }
  end
  for line, want in pairs({
    ["x -- sh -c 'make test | less'"] = { 'x', { 'sh', '-c', 'make test | less' } },
    [ [[x -- echo "it's \"so\"" a\ b '\n' '' C:\d]] ] = { 'x', { 'echo', 'it\'s "so"', 'a b', '\\n', '', 'C:\\d' } },
    ["x -- -- a'b  c'd"] = { 'x', { '--', 'ab  cd' } },
    ["it's\\ -- -- ls"] = { "it's --", { 'ls' } },
    ["it's -- ls"] = { "it's", { 'ls' } },
    ['x agent --'] = { 'x', {} },
  }) do
    given = nil
    vim.cmd('Abx attach ' .. line)
    h.equal(given, want)
  end
  given = nil
  vim.cmd("Abx attach x -- echo 'a b")
  abx.attach = attach
  h.equal(given, nil)
  h.noticed('a quote in the command does not end')
end)

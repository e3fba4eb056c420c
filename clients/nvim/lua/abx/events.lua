--- What happens, in a buffer that follows it.
local client = require('abx.client')
local config = require('abx.config')
local text = require('abx.text')
local window = require('abx.window')

local M = {}

-- Lines that are kept.
local MOST = 2000

-- Events that are shown of what has happened before.
local BEFORE = 200

local function append(buffer, lines)
  if not vim.api.nvim_buf_is_valid(buffer) then
    return
  end
  local count = vim.api.nvim_buf_line_count(buffer)
  local empty = count == 1 and vim.api.nvim_buf_get_lines(buffer, 0, 1, false)[1] == ''
  -- Who looks at the end goes on looking at the end.
  local followers = {}
  for _, win in ipairs(vim.fn.win_findbuf(buffer)) do
    if vim.api.nvim_win_get_cursor(win)[1] >= count then
      followers[#followers + 1] = win
    end
  end
  window.write(buffer, empty and 0 or count, -1, lines)
  count = vim.api.nvim_buf_line_count(buffer)
  if count > MOST then
    window.write(buffer, 0, count - MOST, {})
    count = MOST
  end
  for _, win in ipairs(followers) do
    vim.api.nvim_win_set_cursor(win, { count, 0 })
  end
end

--- Opens the events of a session, or all.
function M.open(name)
  local title = 'abx://events' .. (name and ('/' .. name) or '')
  local buffer, made = window.scratch(title, 'abx-events')
  window.show(buffer, config.values.list.open)
  vim.wo.wrap = false
  if not made then
    return buffer
  end
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = buffer, nowait = true, desc = 'abx: close' })
  local session = name and client.find(name)
  local last, held = nil, {}
  local function show(event)
    if event.kind == 'progress' then
      return
    end
    if event.kind == 'subscribed' then
      -- What is read of the past says by itself where it begins.
      if last then
        append(buffer, { text.event(event) })
      end
      return
    end
    if name and event.session ~= name and not (session and event.session_id == session.id) then
      return
    end
    if not last then
      -- What comes before the past has been written waits for it.
      held[#held + 1] = event
    elseif event.seq > last then
      last = event.seq
      append(buffer, { text.event(event) })
    end
  end
  local stop = client.on('event', show)
  vim.api.nvim_create_autocmd('BufWipeout', { buffer = buffer, once = true, callback = stop })
  client.request('event.list', { session = name, limit = BEFORE }, function(err, list)
    if err then
      append(buffer, vim.split(text.failure(err), '\n'))
      list = {}
    end
    last = #list > 0 and list[#list].seq or 0
    append(buffer, vim.tbl_map(text.event, list))
    for _, event in ipairs(held) do
      show(event)
    end
    held = {}
  end)
  return buffer
end

return M

--- Where a buffer is shown.
local M = {}

--- Makes a window as `how` says and goes there; `how` is 'split', 'vsplit', 'tab', 'current' or a function.
function M.make(how)
  if type(how) == 'function' then
    how()
  elseif how == 'vsplit' then
    vim.cmd('vsplit')
  elseif how == 'tab' then
    vim.cmd('tab split')
  elseif how ~= 'current' then
    vim.cmd('split')
  end
end

--- Goes to a window that shows this buffer, or shows it in one that is made for it.
function M.show(buffer, how)
  local window = vim.fn.bufwinid(buffer)
  if window ~= -1 then
    vim.api.nvim_set_current_win(window)
    return
  end
  for _, each in ipairs(vim.fn.win_findbuf(buffer)) do
    vim.api.nvim_set_current_win(each)
    return
  end
  M.make(how)
  vim.api.nvim_win_set_buf(0, buffer)
end

--- A buffer of ours by its name, made if it is not there: of no file, and not to be written.
function M.scratch(name, filetype)
  for _, buffer in ipairs(vim.api.nvim_list_bufs()) do
    if vim.api.nvim_buf_get_name(buffer) == name and vim.api.nvim_buf_is_loaded(buffer) then
      return buffer, false
    end
  end
  local buffer = vim.api.nvim_create_buf(false, true)
  vim.api.nvim_buf_set_name(buffer, name)
  vim.bo[buffer].bufhidden = 'hide'
  vim.bo[buffer].swapfile = false
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].filetype = filetype
  return buffer, true
end

--- Replaces lines of a buffer that the user cannot change.
function M.write(buffer, from, to, lines)
  vim.bo[buffer].modifiable = true
  vim.api.nvim_buf_set_lines(buffer, from, to, false, lines)
  vim.bo[buffer].modifiable = false
  vim.bo[buffer].modified = false
end

return M

-- Shows text that is not in the buffer, where it would be: on the cursor's line, and in lines below.
local M = {}

local NAMESPACE = vim.api.nvim_create_namespace("dflash.ghost")
local GHOST, HINT = "DflashGhost", "DflashHint"

vim.api.nvim_set_hl(0, GHOST, { default = true, link = "NonText" })
vim.api.nvim_set_hl(0, HINT, { default = true, link = "NonText" })

--- `text` with its tabs as blanks: virtual text has no tab stops. `column` is the screen column that it begins at.
---@param text string of one line
---@param column integer
---@param tabstop integer
---@return string
local function with_blanks(text, column, tabstop)
  local out = {}
  for before, tab in text:gmatch("([^\t]*)(\t?)") do
    column = column + vim.fn.strdisplaywidth(before, column)
    table.insert(out, before)
    if tab ~= "" then
      local blanks = tabstop - column % tabstop
      table.insert(out, (" "):rep(blanks))
      column = column + blanks
    end
  end
  return table.concat(out)
end

--- Where what is replaced stands within the text that replaces it, so that only the difference is shown:
--- pairs of an offset behind the cursor and the text to be shown there. nil where it is no part of the text.
---@param text string of one line
---@param replaced string
---@return { [1]: integer, [2]: string }[]?
local function difference(text, replaced)
  if replaced:find("[\128-\255]") then
    return nil -- a byte is no character there
  end
  local pieces, last = {}, #text
  -- From the end: what the editor has closed by itself belongs to the last that closes.
  for place = #replaced, 1, -1 do
    local character = replaced:sub(place, place)
    local found = last
    while found > 0 and text:sub(found, found) ~= character do
      found = found - 1
    end
    if found == 0 then
      return nil
    end
    if found < last then
      table.insert(pieces, { place, text:sub(found + 1, last) })
    end
    last = found - 1
  end
  if last > 0 then
    table.insert(pieces, { 0, text:sub(1, last) })
  end
  return pieces
end

---@param buf integer
---@param row integer 0-based
---@param column integer byte, 0-based
---@param text string lines end with \n
---@param replaced integer how many bytes behind the column the text replaces
---@param hint string shown at the end of the line, "" for none
function M.show(buf, row, column, text, replaced, hint)
  vim.api.nvim_buf_clear_namespace(buf, NAMESPACE, 0, -1)
  local line = vim.api.nvim_buf_get_lines(buf, row, row + 1, true)[1]
  local right = line:sub(column + 1)
  local function mark(at, options)
    -- Within a line, Neovim would give it the look of the text that it stands before.
    options.hl_mode = right:find("%S") and "replace" or "combine"
    options.undo_restore = false
    vim.api.nvim_buf_set_extmark(buf, NAMESPACE, row, at, options)
  end
  local lines = vim.split(text, "\n", { plain = true })
  local tabstop = vim.bo[buf].tabstop
  local start = vim.fn.strdisplaywidth(line:sub(1, column))
  local first = with_blanks(lines[1], start, tabstop)

  local pieces = #lines == 1 and difference(lines[1], right:sub(1, replaced))
  if pieces then
    for _, piece in ipairs(pieces) do
      mark(column + piece[1], { virt_text = { { with_blanks(piece[2], start, tabstop), GHOST } }, virt_text_pos = "inline" })
    end
  elseif right:find("%S") then
    -- Over what stands right of the cursor, which is going to stand behind the last line.
    local surplus = vim.fn.strdisplaywidth(right, start) - vim.fn.strdisplaywidth(first, start)
    local cover = { { first, GHOST }, { (" "):rep(math.max(surplus, 0)) } }
    mark(column, { virt_text = cover, virt_text_pos = "overlay" })
  else
    mark(column, { virt_text = { { first, GHOST } }, virt_text_pos = "inline" })
  end
  if #lines > 1 then
    local below = {}
    for number = 2, #lines do
      table.insert(below, { { with_blanks(lines[number], 0, tabstop), GHOST } })
    end
    local kept = right:sub(replaced + 1)
    if kept:find("%S") then
      local width = vim.fn.strdisplaywidth(with_blanks(lines[#lines], 0, tabstop))
      table.insert(below[#below], { with_blanks(kept, width, tabstop) })
    end
    mark(column, { virt_lines = below })
  end
  if hint ~= "" then
    mark(#line, { virt_text = { { "  " .. hint, HINT } }, virt_text_pos = "eol" })
  end
end

---@param buf integer
function M.hide(buf)
  if vim.api.nvim_buf_is_valid(buf) then
    vim.api.nvim_buf_clear_namespace(buf, NAMESPACE, 0, -1)
  end
end

return M

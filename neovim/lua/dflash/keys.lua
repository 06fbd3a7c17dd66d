-- The keys of insert mode. Each does what it did before wherever there is no completion to work on.
local config = require("dflash.config")

local M = {}

--- Keep what a key does now under another name, to be fallen back on.
---@param lhs string
---@return string keys that do it
local function kept(lhs)
  local before = vim.fn.maparg(lhs, "i", false, true)
  if vim.tbl_isempty(before) then
    local name = ("<Plug>(dflash-plain-%s)"):format(lhs:gsub("[<>]", ""))
    vim.keymap.set("i", name, lhs)
    return name
  end
  local name = ("<Plug>(dflash-before-%s)"):format(lhs:gsub("[<>]", ""))
  before.lhs = name
  before.lhsraw = vim.api.nvim_replace_termcodes(name, true, true, true)
  before.lhsrawalt = nil
  before.buffer = 0
  vim.fn.mapset(before)
  return name
end

--- Map the keys of the configuration.
function M.map()
  for action, lhs in pairs(config.get().keys) do
    if lhs then
      local before = kept(lhs)
      vim.keymap.set("i", lhs, function()
        if not require("dflash")[action]() then
          local keys = vim.api.nvim_replace_termcodes(before, true, true, true)
          vim.api.nvim_feedkeys(keys, "mi", false)
        end
      end, { desc = "DFlash: " .. action:gsub("_", " ") })
    end
  end
end

return M

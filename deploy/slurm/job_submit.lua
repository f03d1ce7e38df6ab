-- Slurm's hook inside of the controller (JobSubmitPlugins=lua; this file beside slurm.conf): compares what a job asks for with the
-- comment that says what its plan asks for, `loadmaster:plans/7f3c;nodes=4;gpus-per-node=h100:8`.
--
-- It calls nobody: a controller waits for its hooks. Jobs without such a comment are none of its business.

-- Whether a job that asks for something else than its plan is refused; else its user is told.
local REFUSE = false

-- What Slurm says where nothing was asked for.
local NOTHING = { [65534] = true, [4294967294] = true }

-- `gres:gpu:h100:8` and `gres/gpu:h100:8` are `h100:8`; several in one order.
local function gpus(tres)
    local all = {}
    for one in (tres or ""):gmatch("[^,]+") do
        all[#all + 1] = (one:gsub("^gres[:/]gpu[:=]?", ""))
    end
    table.sort(all)
    return table.concat(all, ",")
end

local function number(value)
    if value == nil or NOTHING[value] then
        return "none"
    end
    return tostring(math.floor(value))
end

-- What a job asks for, by the names of the comment.
local function asked_by(job)
    return {
        ["nodes"] = number(job.min_nodes),
        ["gpus-per-node"] = gpus(job.tres_per_node),
        ["switches"] = number(job.req_switch),
    }
end

-- What is wrong with a job; nothing if it has no plan.
local function compare(job)
    local plan, asked = (job.comment or ""):match("loadmaster:(plans/[a-z0-9-]+);(%S+)")
    if not plan then
        return nil, nil
    end
    local own, wrong = asked_by(job), {}
    for name, value in asked:gmatch("([a-z-]+)=([^;]+)") do
        local has = own[name]
        if name == "gpus-per-node" then
            value = gpus(value)
        end
        -- What this version of Slurm does not tell cannot be compared.
        if has ~= nil and has ~= value then
            wrong[#wrong + 1] = ("%s is %s and the plan has %s"):format(name, has == "" and "none" or has, value)
        end
    end
    return plan, wrong
end

function slurm_job_submit(job, partitions, user)
    local done, plan, wrong = pcall(compare, job)
    if not done then
        slurm.log_info("loadmaster: cannot compare a job with its plan: %s", tostring(plan))
        return slurm.SUCCESS
    end
    if plan and #wrong > 0 then
        slurm.log_user("loadmaster: this job is not what %s asks for: %s", plan, table.concat(wrong, "; "))
        return REFUSE and slurm.ERROR or slurm.SUCCESS
    end
    if plan then
        slurm.log_user("loadmaster: this job asks for what %s does", plan)
    end
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
    return slurm.SUCCESS
end

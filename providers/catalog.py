"""Every provider as a row of data. To add one, add a line here."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

# How a chat server is asked to think: nothing, `reasoning_effort`, `reasoning: {effort}`, `thinking: {type}`,
# the same with kept history, `enable_thinking`, or Groq's effort with `reasoning_format`.
Reasoning: TypeAlias = Literal["", "effort", "object", "thinking", "kept_thinking", "enable", "groq"]

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
DOCUMENTS = ("application/pdf",)
LEVELS = ("low", "medium", "high")  # of reasoning; the only ones that all servers with levels know


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Where a server departs from its wire; the defaults suit an unknown compatible server."""

    # Requests
    max_tokens: str = "max_tokens"  # OpenAI's reasoning models know only max_completion_tokens
    stream_usage: bool = True  # send stream_options; Mistral refuses unknown keys and sends usage unasked
    reasoning: Reasoning = "effort"
    system_role: Literal["system", "developer"] = "system"
    cache: Literal["", "key", "control"] = ""  # "" caches by itself; prompt_cache_key; cache_control marks
    output: Literal["json_schema", "json_object", ""] = "json_schema"  # what structured output it knows
    strict: bool = True  # whether it knows `strict` beside a schema
    encrypted: bool = False  # Responses: ask for encrypted reasoning, and store nothing
    plain_models: tuple[str, ...] = ("gpt-3", "gpt-4", "chatgpt")  # how those start that refuse to seal reasoning
    images: tuple[str, ...] = ("image/*",)  # media types; what the server makes of them is its own affair
    files: tuple[str, ...] = ("*/*",)  # where it is empty, text still goes as text
    efforts: tuple[str, ...] = LEVELS  # of reasoning
    tools: bool = True
    merge: bool = False  # refuses two user messages in a row

    # What goes back
    tool_ids: Literal["any", "nine"] = "any"  # Mistral wants nine letters or digits
    tool_id_limit: int = 64  # longer ids of other vendors are shortened
    echo: Literal["", "reasoning_content", "reasoning", "reasoning_details", "content"] = ""

    # Replies
    reasoning_apart: bool = False  # the output count leaves reasoning out
    think_tags: bool = False  # <think>...</think> at the start of the text is thinking

    local: bool = False  # runs on this machine; needs no key


@dataclass(frozen=True, slots=True)
class Row:
    """One provider. Adding a line to the catalog adds a provider."""

    name: str
    _: KW_ONLY
    wire: str = "openai_chat"  # what most servers speak
    base_url: str
    key: tuple[str, ...] = ()  # variables, first found wins
    model: str = ""  # the default
    window: int = 128_000  # tokens of context of the default model
    quirks: Quirks = Quirks()
    auth: str = "bearer"  # or the header that carries the key; with "aws" and "google" the wire finds credentials
    base_url_env: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    elsewhere: str = ""  # the wire of a server at another base URL, which may know only the common one


GOOGLE = Quirks(images=("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"))

# In a base URL, {NAME} is a variable of the environment, {NAME|OTHER|default} the first that is set.
# Every row also obeys NAME_BASE_URL. The order is that in which a default is looked for.
ROWS = (
    Row(
        "anthropic",
        wire="anthropic",
        base_url="https://api.anthropic.com/v1",
        key=("ANTHROPIC_API_KEY",),
        model="claude-haiku-5-5",
        window=1_000_000,
        auth="x-api-key",
        quirks=Quirks(images=PICTURES, files=("application/pdf", "text/*")),
    ),
    Row(
        "openai",
        wire="openai_responses",
        elsewhere="openai_chat",
        base_url="https://api.openai.com/v1",
        key=("OPENAI_API_KEY",),
        model="gpt-5.4-nano",
        window=400_000,
        quirks=Quirks(
            images=PICTURES,
            files=DOCUMENTS,
            max_tokens="max_completion_tokens",
            system_role="developer",
            cache="key",
            encrypted=True,
            tool_id_limit=40,
        ),
    ),
    Row(
        "gemini",
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        key=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        model="gemini-3.1-flash-lite",
        window=1_048_576,
        auth="x-goog-api-key",
        quirks=GOOGLE,
    ),
    Row(
        "azure",
        base_url="{AZURE_OPENAI_ENDPOINT}/openai/v1",
        key=("AZURE_OPENAI_API_KEY",),
        model="gpt-5.4-nano",
        auth="api-key",
        base_url_env=("AZURE_OPENAI_BASE_URL",),
        quirks=Quirks(images=PICTURES, files=DOCUMENTS, max_tokens="max_completion_tokens", tool_id_limit=40),
    ),
    Row(
        "vertex",
        wire="gemini",
        base_url="https://{GOOGLE_CLOUD_LOCATION|us-central1}-aiplatform.googleapis.com/v1beta1/projects/"
        "{GOOGLE_CLOUD_PROJECT}/locations/{GOOGLE_CLOUD_LOCATION|us-central1}/publishers/google",
        key=("VERTEX_ACCESS_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"),
        model="gemini-3.1-flash-lite",
        window=1_048_576,
        auth="google",
        quirks=GOOGLE,
    ),
    Row(
        "bedrock",
        wire="bedrock",
        base_url="https://bedrock-runtime.{AWS_REGION|AWS_DEFAULT_REGION|us-east-1}.amazonaws.com",
        key=("AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
        model="amazon.nova-micro-v1:0",
        auth="aws",
        quirks=Quirks(images=PICTURES),
    ),
    Row(
        "bedrock-mantle",
        wire="openai_responses",
        base_url="https://bedrock-mantle.{AWS_REGION|AWS_DEFAULT_REGION|us-east-1}.api.aws/openai/v1",
        key=("AWS_BEARER_TOKEN_BEDROCK",),
        model="openai.gpt-oss-20b",
    ),
    Row(
        "openrouter",
        base_url="https://openrouter.ai/api/v1",
        key=("OPENROUTER_API_KEY",),
        model="openai/gpt-oss-20b",
        quirks=Quirks(
            files=DOCUMENTS,
            efforts=("none", "minimal", *LEVELS, "xhigh"),
            reasoning="object",
            cache="control",
            echo="reasoning_details",
        ),
    ),
    Row(
        "groq",
        base_url="https://api.groq.com/openai/v1",
        key=("GROQ_API_KEY",),
        model="openai/gpt-oss-20b",
        quirks=Quirks(files=(), efforts=("none", *LEVELS), reasoning="groq"),
    ),
    Row(
        "mistral",
        base_url="https://api.mistral.ai/v1",
        key=("MISTRAL_API_KEY",),
        model="mistral-small-latest",
        quirks=Quirks(
            files=(), images=PICTURES, stream_usage=False, reasoning="", tool_ids="nine", echo="content", cache="key"
        ),
    ),
    Row(
        "deepseek",
        base_url="https://api.deepseek.com",
        key=("DEEPSEEK_API_KEY",),
        model="deepseek-v4-flash",
        quirks=Quirks(files=(), images=(), reasoning="thinking", echo="reasoning_content", output="json_object"),
    ),
    Row(
        "xai",
        base_url="https://api.x.ai/v1",
        key=("XAI_API_KEY",),
        model="grok-4-1-fast-non-reasoning",
        window=2_000_000,
        quirks=Quirks(images=("image/png", "image/jpeg"), efforts=("low", "high"), reasoning_apart=True),
    ),
    Row(
        "cerebras",
        base_url="https://api.cerebras.ai/v1",
        key=("CEREBRAS_API_KEY",),
        model="gpt-oss-120b",
        window=131_072,
        quirks=Quirks(files=(), images=(), max_tokens="max_completion_tokens"),
    ),
    Row(
        "together",
        base_url="https://api.together.xyz/v1",
        key=("TOGETHER_API_KEY", "TOGETHERAI_API_KEY"),
        model="openai/gpt-oss-120b",
    ),
    Row(
        "fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        key=("FIREWORKS_API_KEY",),
        model="accounts/fireworks/models/gpt-oss-20b",
    ),
    Row(
        "nvidia",
        base_url="https://integrate.api.nvidia.com/v1",
        key=("NVIDIA_API_KEY", "NVIDIA_NIM_API_KEY"),
        model="meta/llama-3.1-8b-instruct",
    ),
    Row("huggingface", base_url="https://router.huggingface.co/v1", key=("HF_TOKEN",), model="openai/gpt-oss-20b"),
    Row(
        "moonshot",
        base_url="https://api.moonshot.ai/v1",
        key=("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
        model="kimi-k2.6",
        window=262_144,
        quirks=Quirks(reasoning="thinking", echo="reasoning_content"),
    ),
    Row(
        "alibaba",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key=("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
        model="qwen-turbo",
        quirks=Quirks(reasoning="enable", output="json_object"),
    ),
    Row(
        "zai",
        base_url="https://api.z.ai/api/paas/v4",
        key=("ZAI_API_KEY",),
        model="glm-5.3-flash",
        quirks=Quirks(reasoning="kept_thinking", echo="reasoning_content", output="json_object"),
        window=1_000_000,
    ),
    Row(
        "perplexity",
        base_url="https://api.perplexity.ai",
        key=("PERPLEXITY_API_KEY",),
        model="sonar",
        quirks=Quirks(tools=False),
    ),
    Row(
        "deepinfra",
        base_url="https://api.deepinfra.com/v1/openai",
        key=("DEEPINFRA_API_KEY",),
        model="openai/gpt-oss-20b",
    ),
    Row(
        "sambanova",
        base_url="https://api.sambanova.ai/v1",
        key=("SAMBANOVA_API_KEY",),
        model="Meta-Llama-3.1-8B-Instruct",
        window=16_384,
    ),
    Row(
        "snowflake",
        base_url="https://{SNOWFLAKE_ACCOUNT}.snowflakecomputing.com/api/v2/cortex/v1",
        key=("SNOWFLAKE_TOKEN",),
        model="llama3.1-8b",
        quirks=Quirks(reasoning="object", echo="reasoning_details"),
    ),
    Row(
        "github",
        base_url="https://models.github.ai/inference",
        key=("GITHUB_API_KEY",),
        model="openai/gpt-4o-mini",
        quirks=Quirks(tool_id_limit=40),
    ),
    Row(
        "vercel",
        base_url="https://ai-gateway.vercel.sh/v1",
        key=("VERCEL_AI_GATEWAY_API_KEY", "AI_GATEWAY_API_KEY"),
        model="openai/gpt-oss-20b",
    ),
    Row(
        "ollama",
        base_url="http://localhost:11434/v1",
        key=("OLLAMA_API_KEY",),
        model="qwen3:0.6b",
        window=32_768,
        quirks=Quirks(files=(), local=True, echo="reasoning"),
    ),
    Row("llamacpp", base_url="http://localhost:8080/v1", model="default", quirks=Quirks(files=(), local=True)),
    Row("vllm", base_url="http://localhost:8000/v1", quirks=Quirks(local=True, echo="reasoning")),
    Row("lmstudio", base_url="http://localhost:1234/v1", quirks=Quirks(local=True)),
    Row(
        "local", wire="local", base_url="http://localhost", window=8_192, quirks=Quirks(local=True, images=(), files=())
    ),
    Row(
        "openai-compatible",
        base_url="{OPENAI_COMPATIBLE_BASE_URL}",
        key=("OPENAI_COMPATIBLE_API_KEY",),
        quirks=Quirks(local=True),
    ),
)

# The newest first; a model of OpenAI has the levels of the first name that its own begins with.
_EFFORTS = (
    ("gpt-oss", LEVELS),
    ("gpt-3", ()),
    ("gpt-4", ()),
    ("chatgpt", ()),
    ("gpt-5.1", ("none", *LEVELS)),
    ("gpt-5.", ("none", *LEVELS, "xhigh")),
    ("gpt-5-pro", ("high",)),
    ("gpt-5", ("minimal", *LEVELS)),
    ("gpt-", ("none", *LEVELS, "xhigh")),
    ("o1-mini", ()),
    ("o", LEVELS),
)


def efforts(row: Row, model: str) -> tuple[str, ...]:
    """Return the levels of reasoning that a model on one of OpenAI's wires knows."""
    if not row.quirks.reasoning:
        return ()
    if row.name in ("openai", "azure"):
        return next((levels for start, levels in _EFFORTS if model.startswith(start)), row.quirks.efforts)
    return row.quirks.efforts

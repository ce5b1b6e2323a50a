"""Run the server of llama.cpp with a model file until stdin is closed, and print its address.

python llama_server.py MODEL.gguf [--tools]
"""

from __future__ import annotations

import sys
from importlib import import_module

# A chat template with tools. The model's own template has none, so llama.cpp would ignore them.
TOOLS = """\
{%- if tools %}
{{- "<|im_start|>system\\nThese functions may be called:\\n<tools>" }}
{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{{- "\\n</tools>\\nTo call one, write its name and arguments as JSON " }}
{{- "between <tool_call> and </tool_call>." }}
{{- "<|im_end|>\\n" }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == "tool" %}
{{- "<|im_start|>user\\n<tool_response>\\n" + message.content }}
{{- "\\n</tool_response><|im_end|>\\n" }}
{%- elif message.role == "assistant" %}
{{- "<|im_start|>assistant" }}
{%- if message.content %}{{- "\\n" + message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- "\\n<tool_call>\\n{\\"name\\": \\"" + call.function.name + "\\", \\"arguments\\": " }}
{{- call.function.arguments | tojson }}{{- "}\\n</tool_call>" }}
{%- endfor %}
{{- "<|im_end|>\\n" }}
{%- else %}
{{- "<|im_start|>" + message.role + "\\n" + message.content + "<|im_end|>\\n" }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- "<|im_start|>assistant\\n" }}
{%- endif %}"""


def main() -> None:
    engine = import_module("xllamacpp")
    params = engine.CommonParams()
    params.model.path = sys.argv[1]
    params.n_ctx = 2048
    params.n_parallel = 2  # each slot has half of the context
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.use_jinja = True
    params.endpoint_slots = True
    params.verbosity = -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    if "--tools" in sys.argv:
        params.chat_template = TOOLS
    server = engine.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()

"""Shapes in which secrets stand in logs, and harmless text that looks like them.

In a shape, `{name:kind}` is the secret: it is generated, so that no real one stands here.
"""

from __future__ import annotations

import random
import string
from typing import Any

ALPHABETS = {
    "an": string.ascii_letters + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "low": string.ascii_lowercase + string.digits,
    "hex": "0123456789abcdef",
    "b64": string.ascii_letters + string.digits + "+/",
    "dig": string.digits,
}


class Secret:
    """A secret of so many characters of an alphabet: `{an:36}`. Plain passwords: `{word:}`, with blanks: `{words:}`."""

    def __init__(self, kind: str, made: list[str]) -> None:
        self.kind, self.made = kind, made

    def __format__(self, length: str) -> str:
        """Return a new one."""
        if self.kind == "word":
            text = "hunter" + str(len(self.made)) + "bluemoon"
        elif self.kind == "words":
            text = "correct horse battery staple"
        else:
            chance = random.Random(f"{self.kind}{length}{len(self.made)}")
            text = "".join(chance.choice(ALPHABETS[self.kind]) for _ in range(int(length)))
        self.made.append(text)
        return text


def expand(shape: str) -> tuple[str, list[str]]:
    """Return a line with secrets in the shape's places, and these secrets."""
    made: list[str] = []
    fields: dict[str, Any] = {kind: Secret(kind, made) for kind in (*ALPHABETS, "word", "words")}
    return shape.format(**fields), made


SECRETS = tuple(
    line
    for line in r"""
Password for user bob: {word:}
Password for user 'bob': {word:}
password for bob@db: {word:}
[sudo] password for bob: {word:}
Enter passphrase for key '/home/bob/.ssh/id_rsa': {word:}
password '{word:}' is wrong
the password was "{word:}"
https://h/x?api%5Fkey={an:24}&a=1
https://h/x?api%2Dkey={word:}
api%5fkey={an:24}
api%255Fkey={word:}
access%5Ftoken={an:24}
%61pi_key={word:}
password%3D{word:}
PASSWORD&#61;{word:}
password&quot;:&quot;{word:}&quot;
pass\u0077ord={word:}
\u0022password\u0022:\u0022{word:}\u0022
AWS_SECRET_ACCESS_KEY={b64:40}
export AWS_SECRET_ACCESS_KEY="{b64:40}"
aws_secret_access_key = {b64:40}
AWS_SESSION_TOKEN={b64:120}
AWS_ACCESS_KEY_ID=AKIA{up:16}
credentials ASIA{up:16} were used
"SecretAccessKey": "{b64:40}",
"aws": {{"accessKeyId": "AKIA{up:16}", "secretAccessKey": "{b64:40}"}}
GET /?X-Amz-Credential=AKIA{up:16}%2F20240101&X-Amz-Signature={hex:64}&X-Amz-Expires=600
https://bucket.s3.amazonaws.com/a?AWSAccessKeyId=AKIA{up:16}&Signature={b64:28}&Expires=1
https://storage.googleapis.com/b/o?X-Goog-Algorithm=GOOG4&X-Goog-Signature={hex:128}
https://storage.googleapis.com/b/o?x-goog-credential=robot%40{an:30}&x-goog-date=2024
https://acct.blob.core.windows.net/c/b?sv=2022-11-02&ss=b&sig={an:43}%3D
DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={b64:86}==;EndpointSuffix=core.windows.net
Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={b64:43}=
AZURE_CLIENT_SECRET={an:3}8Q~{an:34}
the client secret is {an:3}8Q~{an:34} until May
AZURE_STORAGE_KEY={b64:86}==
GOOGLE_API_KEY=AIza{an:35}
https://maps.googleapis.com/x?key=AIza{an:35}&v=3
AIza{an:35}
ya29.{an:60}
GOCSPX-{an:28}
"private_key": "-----BEGIN PRIVATE KEY-----\nMIIE{b64:120}\n{b64:64}\n-----END PRIVATE KEY-----\n",
-----BEGIN RSA PRIVATE KEY----- MIIE{b64:90} {b64:64} -----END RSA PRIVATE KEY-----
-----BEGIN OPENSSH PRIVATE KEY-----\n{b64:70}\n{b64:70}
-----BEGIN EC PRIVATE KEY-----{b64:90}
-----BEGIN ENCRYPTED PRIVATE KEY-----{b64:90}-----END ENCRYPTED PRIVATE KEY-----
-----BEGIN PGP PRIVATE KEY BLOCK-----{b64:90}
MIIEvQIBADANBgkqhkiG9w0BAQEFAASC{b64:80}
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE{b64:60}
Authorization: Bearer {an:40}
authorization: bearer {an:40}
"Authorization": "Bearer {an:40}"
{{'Authorization': 'Bearer {an:40}', 'Accept': '*/*'}}
headers=[(b'authorization', b'Bearer {an:40}')]
-H "Authorization: Basic {b64:30}=="
-H 'Authorization: token {an:40}'
Proxy-Authorization: Basic {b64:30}==
Authorization: AWS4-HMAC-SHA256 Credential=AKIA{up:16}/20240101/us-east-1/s3/aws4_request, Signature={hex:64}
Authorization: Digest username="u", realm="r", nonce="n", response="{hex:32}"
{{\"Authorization\": \"Bearer {an:40}\"}}
using bearer {an:40} for the call
X-Api-Key: {an:32}
x-auth-token: {an:32}
X-Vault-Token: {an:26}
PRIVATE-TOKEN: {an:20}
X-Hub-Signature: {hex:40}
Cookie: session={an:40}; theme=dark
Set-Cookie: sid={an:40}; Path=/; HttpOnly
Ocp-Apim-Subscription-Key: {hex:32}
password={word:}
password: {word:}
Password = "{words:}"
'password': '{words:}',
\"password\": \"{words:}\"
\\\"password\\\": \\\"{words:}\\\"
PGPASSWORD={word:} psql -h db
MYSQL_PWD={word:}
MYSQL_ROOT_PASSWORD: {word:}
DB_PASS={word:}
db_pass: "{words:}"
SMTP_PASS='{words:}'
REDIS_PASSWORD={word:}
spring.datasource.password={word:}
Server=db;Uid=sa;Pwd={word:};Database=x
User Id=sa;Password={word:};
jdbc:mysql://db/x?user=me&password={word:}&ssl=true
--password {word:}
--password={word:}
--password '{words:}'
--db-password "{word:}" --host db
sshpass -p {word:} ssh node
sshpass -p{word:} ssh node
curl -u admin:{word:} https://host
curl --user admin:{word:} https://host
machine api.wandb.ai login user password {hex:40}
<password>{word:}</password>
passwd: {word:}
passphrase="{words:}"
KEYSTORE_PASS={word:}
os.environ["WANDB_API_KEY"] = "{hex:40}"
WANDB_API_KEY={hex:40}
WANDB_API_KEY: {hex:40}
wandb_v1_{an:40}
HF_TOKEN=hf_{an:34}
hf_{an:34}
hf_token='hf_{an:34}'
HUGGING_FACE_HUB_TOKEN={an:37}
use_auth_token=hf_{an:34}
OPENAI_API_KEY=sk-{an:48}
sk-proj-{an:80}
sk-ant-api03-{an:80}
openai.api_key = "sk-{an:48}"
ANTHROPIC_API_KEY={an:50}
COMET_API_KEY={an:25}
NEPTUNE_API_TOKEN=eyJhcGlfYWRkcmVzcyI6{an:60}
MLFLOW_TRACKING_PASSWORD={word:}
MLFLOW_TRACKING_TOKEN={an:32}
NGC_API_KEY={an:84}
nvapi-{an:64}
gsk_{an:52}
ghp_{an:36}
gho_{an:36}
ghu_{an:36}
ghs_{an:36}
ghr_{an:36}
github_pat_{an:22}_{an:59}
GITHUB_TOKEN={an:40}
glpat-{an:20}
gldt-{an:20}
CI_JOB_TOKEN={an:20}
xoxb-{dig:12}-{dig:12}-{an:24}
xoxp-{dig:12}-{dig:12}-{hex:32}
xapp-1-A{up:10}-{dig:12}-{hex:64}
https://hooks.slack.com/services/T{up:8}/B{up:8}/{an:24}
https://discord.com/api/webhooks/{dig:18}/{an:68}
https://x.webhook.office.com/webhookb2/{hex:32}@{hex:32}/IncomingWebhook/{hex:32}
npm_{an:36}
//registry.npmjs.org/:_authToken={an:36}
pypi-AgEIcHlwaS5vcmc{an:60}
TWINE_PASSWORD=pypi-AgEIcHlwaS5vcmc{an:60}
dckr_pat_{an:27}
"auth": "{b64:32}"
.dockerconfigjson: {b64:80}
hvs.{an:24}
hvb.{an:80}
VAULT_TOKEN={an:26}
dop_v1_{hex:64}
dapi{hex:32}
DATABRICKS_TOKEN={an:36}
SG.{an:22}.{an:43}
sk_live_{an:24}
rk_test_{an:24}
whsec_{b64:32}
lin_api_{an:40}
glsa_{an:32}_{hex:8}
NRAK-{up:27}
ATATT3xFfGF0{an:60}
tskey-auth-{an:12}-{an:24}
{dig:10}:AA{an:33}
eyJhbGciOiJIUzI1NiJ9.{an:40}.{an:43}
AGE-SECRET-KEY-1{up:58}
https://{an:40}@github.com/org/repo.git
https://user:{word:}@host/path
https://oauth2:{an:20}@gitlab.com/x.git
https://{hex:32}@o1.ingest.sentry.io/42
postgres://me:{word:}@db:5432/x
redis://:{word:}@cache:6379/0
mongodb+srv://me:{word:}@cluster/x
amqp://guest:{word:}@mq//
git+https://{an:40}@host/x
users: - name: me user: client-key-data: {b64:120}
user: {{token: {an:40}}}
token={an:40}
"token": "{hex:64}"
access_token={an:30}&expires_in=3600
https://api.host/x?token={word:}
https://api.host/x?access_token={word:}&a=1
refresh_token: "{an:40}"
clientSecret: {an:32}
client_secret={an:32}
"api_key": "{an:32}"
apikey={an:32}
api-key: {an:32}
ENCRYPTION_KEY={hex:64}
SIGNING_KEY={word:}
DEPLOY_KEY={word:}
JWT_SECRET={word:}
DJANGO_SECRET_KEY='{words:}'
ssh_key: {b64:60}
{{"name": "DB_PASSWORD", "value": "{word:}"}}
- name: API_TOKEN value: {word:}
Config(host='db', password='{words:}', port=1)
RuntimeError: login failed for {{'user': 'me', 'credentials': '{words:}'}}
set AWS_SECRET_ACCESS_KEY {an:40}
setenv WANDB_API_KEY {hex:40}
api_key is {an:32}
using the API key {an:32} of the project
ApiKey('{an:40}')
login(api_key('{an:40}'))
wandb login {hex:40}
wandb login --relogin --host=https://w.example {hex:40}
mysql -uroot -p{an:20} jobs
mysqldump -h db -p{an:20}
redis-cli -h cache -a {word:}
token: !!str {an:40}
secret: |\n  {an:40}
PASSWORD<<{word:}
AccountKey%3D{b64:44}
SLURM_JWT={an:48}
KRB5 ticket={an:60}
['--password', '{word:}']
["--wandb-api-key", "{an:40}"]
""".strip().splitlines()
)

#: Shapes with what does not stand in a line of this file: escape codes, marks that are not seen, other signs for the same.
SECRETS += (
    "HF_TOKEN=hf_{an:12}\x1b[0m{an:22}",
    "hf_{an:10}\u200b{an:24} was used",
    "pass\u200bword={word:}",
    "pass\x1b[1mword\x1b[0m={word:}",
    "password\x1b[0m=\x1b[31m{word:}\x1b[0m",
    "AKIA\u200d{up:16}",
    "ghp_{an:8}\u00ad{an:28}",
    "glpat-\u2060{an:20}",
    "api\ufe0f_key={word:}",
    "password\uff1d{word:}",
    "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44={word:}",
    "password\u00a0=\u00a0{word:}",
    "\x1b]0;title\x07DB_PASSWORD={word:}",
)

HARMLESS = tuple(
    line
    for line in """
commit 3f786850e387550fdab836ed7e6dc881de23001b
HEAD is now at 89e6c98d92887913cadf06b2adb97f26cde4849b fix
sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
md5sum d41d8cd98f00b204e9800998ecf8427e  model.bin
image nvcr.io/nvidia/pytorch@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
checksum=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
"integrity": "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg=="
run id 550e8400-e29b-41d4-a716-446655440000
rdzv_id=3f2504e0-4f89-11d3-9a0c-0305e82c3301
job_uuid: 3f2504e0-4f89-11d3-9a0c-0305e82c3301
etag "33a64df551425fcc55e4d42a148795d9f25f89d4"
commHash 0x6a3f1b2c9d8e7f60 commId 0x5f1e2d3c4b5a6978
fingerprint: 7f3a9c0e1b2d4f56
cache_key=9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
cache key: 9f86d081884c
hash_key: 12345
tokens: 4096
num_tokens=1048576
max_tokens=2048
max_new_tokens: 512
total_tokens: 1,234,567,890
tokens per second: 12345.6
token_count=99
pad_token_id=50256
pad_token: <pad>
eos_token='</s>'
bos_token="<|begin_of_text|>"
unk_token=[UNK]
mask_token: <mask>
PAD_TOKEN=[PAD]
BOS_TOKEN=<|im_start|>
token_type_ids: torch.Size([8, 512])
image_token_index=32000
token: the
token='hello'
next token: 'world'
tokenizer=meta-llama/Llama-2-7b-hf
tokenizer_class: LlamaTokenizerFast
tokenizer.json: 1842767 bytes
Token indices sequence length is longer than 1024
prompt_token: 128000
cancellation_token=CancellationToken@4f3c
key_padding_mask=None
key=layers.0.self_attn.q_proj.weight
key: model.layers.12.mlp.down_proj.weight
KeyError: 'optimizer_state'
Missing key(s) in state_dict: "head.weight", "head.bias"
unexpected key: "module.encoder.layers.11.norm2.weight"
store key: default_pg/0//cuda//0
store_based_barrier_key:1
key 'worker/0/rank_3' was not set
wait(key=rank_17/step_1000)
primary_key=id
PRIMARY_KEY=user_id
SORT_KEY=created_at
partition_key: date
public_key: ssh-ed25519-of-host
monkey=banana
keyboard=us
keys: ['input_ids', 'labels']
num_keys=128
n_keys: 4096
dict_keys(['a', 'b'])
key: value
key=0
q_proj.key.weight
attention.key: torch.Size([4096, 4096])
pass=2
pass: 3
first pass: ok
forward_pass=12.4ms
backward_pass: 0.5 s
compass: north
bypass=true
passed=10
tests passed: 128
pass rate: 0.98
password: None
password=None
password: ***
PASSWORD=${DB_PASSWORD}
password=<hidden>
password: [redacted]
secret=True
secret: null
passwordless=false
API_KEY=
"api_key": null
"token": ""
auth=None
auth: false
author: Jane Doe
authority=internal
authentication: kerberos
auth_type=none
authoritative: yes
secretary: Jane
signature: foo(int, float)
function signature=(Tensor self, int dim) -> Tensor
design=modern
session: 12
session_id=42
sign=-1
PWD=/workspace/train
OLDPWD=/workspace
credentials were not found
no credentials were given
sk-learn
scikit-learn-extra-0123456789
task-0123456789abcdefghijkl
hf_model_llama_7b_step_1000
using password: YES
key for group 0: barrier
token for rank 3: 55
Enter passphrase for key '/home/x/.ssh/id_rsa':
password for user bob: expired
100%5 done
a%20b&amp;c \u0041
the key of the map: name
npm_lifecycle_event=start
npm_config_cache=/tmp/cache
pypi-server-2.1.0
gholson-2-abcdefgh
https://github.com/pytorch/pytorch/issues/12345
https://huggingface.co/docs/transformers?x=1#key
ssh://git@github.com/org/repo.git
git@github.com:org/repo.git
rsync://mirror@host/path
tcp://10.0.0.1:29500
http://host:8080/path@v2
s3://bucket/prefix/part-00000.parquet
env://
file:///workspace/train/data
pip install torch@https://download.pytorch.org/whl/cpu
docker run -u 1000:1000 image
--key-dim 64
--max-tokens 4096
--token-budget 8192
--pad-token-id 0
--seed 1234567890
Loading checkpoint shards: 100%
loss=2.3456789 lr=1e-4 grad_norm=0.123456
size=1234567890 bytes=9876543210
elapsed: 1234567890123456789 ns
[rank3]: last enqueued NCCL work: 812, last completed NCCL work: 811.
WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000)
ncclUniqueId 0x1234567890abcdef1234567890abcdef
NCCL_SOCKET_IFNAME=eth0
CUDA_VISIBLE_DEVICES=GPU-3f2504e0-4f89-11d3-9a0c-0305e82c3301
MASTER_ADDR=gpu07.cluster
libtorch_cuda.so(+0x5f3a1b2c) [0x7f3a9c0e1b2d]
frame #3: c10d::ProcessGroupNCCL::watchdogHandler() + 0x3d0 (0x7f0123456789 in libtorch_cuda.so)
torch-2.7.0+cu128-cp312-cp312-manylinux_2_28_x86_64.whl
/opt/conda/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py
File "train.py", line 412, in maybe_skip_batch
-----BEGIN CERTIFICATE REQUEST-----
-----BEGIN PUBLIC KEY-----
bearer of bad news
a token of appreciation: thanks
expected key length: 16
sig=SIGTERM
signal: SIGKILL (9)
signature mismatch: expected Tensor
code=15
exitcode: -9
passphrase: required
secret: [hidden]
hook=post_forward
cache key 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
missing key model.layers.0.self_attn.q_proj.weight
the key encoder.layer.11.attention.output
no token is left at position 123456789012345678
mysql -uroot jobs
KeyError: key 'transformer.h.0.attn.c_attn.weight'
ticket: HPC-12345 was opened
password is required
webhook: disabled
""".strip().splitlines()
)

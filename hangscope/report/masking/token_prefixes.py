"""Prefixes by which issuers mark their tokens, and what follows them: (prefixes, characters, least length) per row.

The facts are those that issuers publish for secret scanners, as collected by gitleaks (config/gitleaks.toml, v8), detect-secrets
(detect_secrets/plugins) and GitHub (docs, "Supported secret scanning patterns"). Lengths are lower bounds below the real ones,
because quoted text may be cut. A row must match no hash, commit ID, UUID or module name; `DIGIT` demands a digit.
"""

from __future__ import annotations

ALNUM = "[A-Za-z0-9]"
HEX = "[0-9a-f]"
UPPER = "[A-Z0-9]"
WORD = r"[\w-]"
BASE64 = r"[\w+/=.-]"
DIGIT = r"(?=[A-Za-z-]{0,40}\d)"

KNOWN: tuple[tuple[str, str, int], ...] = (
    # clouds and hosting
    ("AKIA ASIA ABIA ACCA", UPPER, 12),
    ("ABSK bedrock-api-key-", "[A-Za-z0-9+/=]", 40),
    ("LTAI", DIGIT + ALNUM, 16),
    ("AIza ya29. GOCSPX-", r"[\w.-]", 20),
    ("1//0 AQVN", WORD, 30),
    ("dop_v1_ doo_v1_ dor_v1_ dapi pul- sbp_ rubygems_ squ_ sqp_ sqa_", HEX, 30),
    ("fm1_ fm1a_ fm1r_ fm2_ fo1_ pscale_tkn_ pscale_pw_ pscale_oauth_", BASE64, 20),
    ("HRKU-AA cfut_ sha256~ hvs. hvb. ops_eyJ", WORD, 20),
    ("tskey-auth- tskey-api- tskey-client-", WORD, 12),
    ("dp.pt. dp.st. dp.ct. dp.sa. dnkey- AKCp ico-", DIGIT + r"[\w=-]", 30),
    ("v1.0-", "[0-9a-f-]", 60),
    # source, packages and builds
    ("ghp_ gho_ ghr_ ghs_ ghu_", r"\w", 16),
    ("github_pat_ dckr_pat_ dckr_oat_ lin_api_", WORD, 20),
    (
        "glpat- gloas- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- glffct- GR1348941",
        r"[\w.-]",
        16,
    ),
    ("npm_ CLOJARS_ pnu_ rdme_", ALNUM, 30),
    ("pypi-Ag pypi-ag", WORD, 20),
    ("ATATT3 ATBB sgp_", DIGIT + r"[\w=-]", 24),
    ("API-", UPPER, 24),
    # models and training
    ("hf_ api_org_", ALNUM, 20),
    ("sk-proj- sk-ant- sk-svcacct- sk-admin- sk-or-", WORD, 12),
    ("sk-", DIGIT + ALNUM, 20),
    ("sess-", DIGIT + ALNUM, 36),  # a session that a UUID names has 32
    ("sk_", DIGIT + HEX, 40),
    ("gsk_ r8_ xai- pplx- csk- phx_ esecret_", DIGIT + ALNUM, 30),
    ("nvapi- pcsk_", DIGIT + WORD, 50),
    ("fw_ rpa_ pa-", DIGIT + ALNUM, 20),
    ("tgp_v1_ wandb_v1_ lsv2_pt_ lsv2_sk_ tvly-", DIGIT + WORD, 20),
    # services
    ("xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.", r"[\w.-]", 10),
    (
        "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ FLWSECK_TEST- sm_pat_ sm_aat_ sm_sat_",
        r"[\w-]",
        10,
    ),
    ("glsa_ sntrys_ sntryu_ tfp_", BASE64, 24),
    ("whsec_ glc_", "[A-Za-z0-9+/=]", 24),
    ("shpat_ shpca_ shppa_ shpss_ shippo_live_ shippo_test_ s-s4t2ud- s-s4t2af-", "[0-9A-Fa-f]", 20),
    ("sq0atp- sq0csp- sq0idp- NRAK- PMAK- duffel_test_ duffel_live_ fio-u- xkeysib-", WORD, 20),
    ("SK", DIGIT + HEX, 32),
    ("secret_ ntn_ EZAK EZTK", DIGIT + ALNUM, 40),
    ("AGE-SECRET-KEY-1", UPPER, 40),
    ("SUA SAA SOA SNA SCA SXA", DIGIT + UPPER, 52),
    (
        "figd_ nfp_ rnd_ ddp_ ddo_ dbtc_ dbtu_ jina_ bkua_ bkat_ zpka_ rpk_ pnb_ sb_secret_ CW-SECRET-",
        DIGIT + WORD,
        24,
    ),
    ("re_ npg_", r"(?=[A-Za-z]{0,40}\d)[A-Za-z0-9_]", 12),
    ("e2b_ aio_", DIGIT + ALNUM, 26),
    ("sk-lf- pk-lf-", "[0-9a-f-]", 30),
    (
        "CCIPAT_ BBDC- ATCTT3 ATSTT3 ghost_ SWMTKN-1- amzn.mws. amzn1.oa2-cs.v1. NRII- NRJS- NRBR- tk-us- GOOG1E",
        DIGIT + r"[\w=+/-]",
        20,
    ),
    ("oy2", "[a-z0-9]", 43),
)

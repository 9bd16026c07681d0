"""Maps the tensor names in released and older files to the names used here."""

import re

__all__ = ["present_name"]

_BUFFER = re.compile(r"(^|\.)(freqs_cis|cos|sin|inv_freq|rotary\w*|attn_mask|causal_mask|mask|kv_cache)(\.|$)")

_OLDER = tuple(
    (re.compile(old), new)
    for old, new in (
        (r"vision_encoder\.encoder\.model\.visual\.patch_embed\.linear\.", "vision.patch_emb."),
        (r"vision_encoder\.encoder\.model\.visual\.pos_embed$", "vision.pos_emb"),
        (r"vision_encoder\.encoder\.model\.visual\.blocks\.(\d+)\.norm([12])\.", r"vision.blocks.\1.ln\2."),
        (r"vision_encoder\.encoder\.model\.visual\.blocks\.", "vision.blocks."),
        (r"vision_encoder\.encoder\.model\.visual\.norm\.", "vision.post_ln."),
        (r"vision_encoder\.projection\.mlp\.", "vision.proj_mlp."),
        (r"text_model\.transformer\.embd\.wte\.weight$", "text.wte"),
        (r"text_model\.transformer\.h\.(\d+)\.mixer\.Wqkv\.", r"text.blocks.\1.attn.qkv."),
        (r"text_model\.transformer\.h\.(\d+)\.mixer\.out_proj\.", r"text.blocks.\1.attn.proj."),
        (r"text_model\.transformer\.h\.", "text.blocks."),
        (r"text_model\.lm_head\.ln\.", "text.post_ln."),
        (r"text_model\.lm_head\.linear\.", "text.lm_head."),
        (r"region_model\.coordinate_features\.weight$", "region.coord_features"),
        (r"region_model\.size_features\.weight$", "region.size_features"),
        (r"region_model\.coordinate_(encoder|decoder)\.", r"region.coord_\1."),
        (r"region_model\.size_(encoder|decoder)\.", r"region.size_\1."),
    )
)
_TRANSPOSED = re.compile(r"region_model\.(coordinate|size)_features\.weight$")


def present_name(stored: str) -> tuple[str, bool] | None:
    """Return the name used here and whether the tensor is stored transposed; None if it is not a weight.

    Released files may put "model." before every name; compiled ones leave "._orig_mod" in it.
    """
    name = stored.replace("._orig_mod", "").removeprefix("_orig_mod.").removeprefix("model.")
    if _BUFFER.search(name):
        return None
    for old, new in _OLDER:
        if old.match(name):
            return old.sub(new, name, count=1), bool(_TRANSPOSED.match(name))
    return name, False

"""The names under which attention code keeps its sizes, and the letter that stands for each here."""

from __future__ import annotations

_WORDS = {
    "B": "b bs bsz bz n_batch batch batch_size batchsize nbatches num_batches",
    "T": """t seq_len seqlen seq_length q_len tgt_len target_len num_tokens n_tokens ntokens length tokens
         query_len query_length tgt_length sequence_length l_q len_q q_length nt time_steps""",
    "S": """s src_len source_len kv_len k_len kv_seq_len key_len key_length total total_len kv_length
         src_length l_k len_k len_kv s_k t_k""",
    "H": """h nh n_h num_heads n_heads n_head num_head nhead nheads heads n_local_heads num_attention_heads
         attention_heads q_heads n_q_heads num_query_heads num_q_heads number_of_heads head_count heads_count
         nb_heads decoder_attention_heads encoder_attention_heads local_heads n_heads_q""",
    "G": """g n_kv_heads num_kv_heads n_kv_head kv_heads num_key_value_heads n_local_kv_heads n_query_groups
         num_kv_head n_groups num_groups nkv n_kv num_k_heads key_value_heads""",
    "D": """head_dim head_size d_head dim_head dh hd hs d_k dk d_v dv d_q head_width dim_per_head d_per_head
         size_per_head attention_head_size head_features d_kv kv_channels qk_head_dim v_head_dim per_head
         head_channels dim_heads d_keys d_values hidden_size_per_attention_head""",
    "C": """c d_model n_embd n_embed embed_dim emb_dim embedding_dim dim hidden_size hidden_dim n_state
         width channels d_out model_dim hidden embed_size emb_size d_embed all_head_size n_dim model_size
         d_emb dim_model num_hiddens embed n_channels""",
    "V": "v vocab_size n_vocab vocab padded_vocab_size num_embeddings vocabulary_size",
}
_LETTER = {word: letter for letter, words in _WORDS.items() for word in words.split()}

# Words that alone could mean several things; they count where nothing that the code does says better.
_WEAK = {"d": "C", "e": "C", "n": "T", "l": "T", "x": None, "k": None, "q": None, "v": None}


def letter_of(identifier: str) -> str | None:
    """The letter for an identifier (the last part of a dotted name), or None."""
    word = identifier.lstrip("_")
    if len(word) == 1 and word.isupper():
        return word if word in "BTSHGDCV" else {"N": "B", "L": "T", "E": "C"}.get(word)
    word = word.lower()
    return _WEAK[word] if word in _WEAK else _LETTER.get(word)

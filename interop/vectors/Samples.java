// Values for the fields of a message, as Kafka's JSON converters take them.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.BinaryNode;
import com.fasterxml.jackson.databind.node.BooleanNode;
import com.fasterxml.jackson.databind.node.DoubleNode;
import com.fasterxml.jackson.databind.node.IntNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.LongNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.Uuid;

final class Samples {
    enum Kind {
        /** Every field set, each to a value that its place in the message tells. */
        SET("set"),
        /** Null where there is a form for it, at the outermost place. */
        NULLS("nulls"),
        /** Null in the elements of arrays that have one element. */
        INNER_NULLS("inner-nulls"),
        /** Nothing null, strings and arrays empty. */
        EMPTIES("empties"),
        /** Lengths that take two bytes as a varint, and the ends of the ranges of numbers. */
        LONG("long");

        final String label;

        Kind(String label) {
            this.label = label;
        }
    }

    /** In the protocol crate's tests the same texts stand in the same order. */
    private static final String[] TEXTS =
            {"a", "orders", "gr\u00fc\u00dfe", "a longer name, with spaces"};

    private static final int LONG = 130;

    private final JsonNode definition;
    private final Kind kind;
    private final short version;
    private final Map<String, JsonNode> structs = new HashMap<>();

    Samples(JsonNode definition, Kind kind, short version) {
        this.definition = definition;
        this.kind = kind;
        this.version = version;
        for (JsonNode struct : definition.path("commonStructs")) {
            structs.put(struct.get("name").asText(), struct);
        }
    }

    ObjectNode message() {
        return struct(definition, definition.get("name").asText());
    }

    private ObjectNode struct(JsonNode fields, String place) {
        ObjectNode struct = JsonNodeFactory.instance.objectNode();
        for (JsonNode field : fields.get("fields")) {
            String name = field.get("name").asText();
            JsonNode value = field(field, place + "." + capital(name));
            if (value != null) {
                struct.set(name.substring(0, 1).toLowerCase() + name.substring(1), value);
            }
        }
        return struct;
    }

    private static String capital(String name) {
        return name.substring(0, 1).toUpperCase() + name.substring(1);
    }

    /** No value for a field that the version does not have, or that is left at its default. */
    private JsonNode field(JsonNode field, String place) {
        boolean tagged = covers(field.path("taggedVersions").asText("none"));
        if (!tagged && !covers(field.path("versions").asText("none"))) {
            return null;
        }
        String type = field.get("type").asText();
        boolean array = type.startsWith("[]");
        boolean nullable = covers(field.path("nullableVersions").asText("none"));
        if (nullable && (kind == Kind.NULLS || kind == Kind.INNER_NULLS && !array)) {
            return NullNode.instance;
        }
        if (tagged && !array && (kind == Kind.NULLS || kind == Kind.EMPTIES)) {
            return null;
        }
        return array ? array(field, type.substring(2), place) : value(field, type, place);
    }

    private ArrayNode array(JsonNode field, String type, String place) {
        int count = switch (kind) {
            case SET -> 2;
            case NULLS, INNER_NULLS -> 1;
            case EMPTIES -> 0;
            case LONG -> isStruct(type) ? 1 : LONG;
        };
        ArrayNode array = JsonNodeFactory.instance.arrayNode();
        for (int index = 0; index < count; index++) {
            // Many long texts would only fill the files.
            boolean blank = kind == Kind.LONG && type.equals("string");
            array.add(blank ? TextNode.valueOf("") : value(field, type, place + "." + index));
        }
        return array;
    }

    private static boolean isStruct(String type) {
        return Character.isUpperCase(type.charAt(0));
    }

    private JsonNode value(JsonNode field, String type, String place) {
        if (isStruct(type)) {
            return struct(structs.getOrDefault(type, field), place);
        }
        long number = hash(place);
        return switch (type) {
            case "bool" -> BooleanNode.valueOf(kind == Kind.SET && (number & 0x100) == 0);
            case "int8" -> IntNode.valueOf((byte) number(number, 1, Byte.MIN_VALUE));
            case "int16" -> IntNode.valueOf((short) number(number, 2, Short.MIN_VALUE));
            case "uint16" -> IntNode.valueOf((int) (number(number, 2, 0) & 0xffff));
            case "int32" -> IntNode.valueOf((int) number(number, 4, Integer.MIN_VALUE));
            case "uint32" -> LongNode.valueOf(number(number, 4, 0) & 0xffff_ffffL);
            case "int64" -> LongNode.valueOf(number(number, 8, Long.MIN_VALUE));
            case "float64" -> DoubleNode.valueOf((int) number(number, 4, Integer.MIN_VALUE));
            case "uuid" -> TextNode.valueOf(uuid(number).toString());
            case "string" -> TextNode.valueOf(text(number));
            case "bytes", "records" ->
                    BinaryNode.valueOf(text(number).getBytes(StandardCharsets.UTF_8));
            default -> throw new IllegalArgumentException(type);
        };
    }

    /** The first bytes of a hash, the lowest one first, as a big-endian number. */
    private long number(long hash, int bytes, long least) {
        switch (kind) {
            case SET:
                return Long.reverseBytes(hash) >>> (64 - 8 * bytes);
            case INNER_NULLS:
                return -1;
            case LONG:
                return (hash & 1) == 0 ? least : ~least;
            default:
                return 0;
        }
    }

    private Uuid uuid(long hash) {
        long half = Long.reverseBytes(hash);
        return kind == Kind.SET || kind == Kind.LONG ? new Uuid(half, half) : Uuid.ZERO_UUID;
    }

    private String text(long hash) {
        return switch (kind) {
            case SET -> TEXTS[(int) (hash & 0xff) % TEXTS.length];
            case LONG -> "x".repeat(LONG);
            default -> "";
        };
    }

    /** FNV-1a. */
    private static long hash(String place) {
        long hash = 0xcbf29ce484222325L;
        for (byte letter : place.getBytes(StandardCharsets.UTF_8)) {
            hash = (hash ^ (letter & 0xff)) * 0x100000001b3L;
        }
        return hash;
    }

    private boolean covers(String versions) {
        if (versions.equals("none")) {
            return false;
        }
        String[] ends = versions.split("-");
        if (versions.endsWith("+")) {
            return version >= Short.parseShort(versions.substring(0, versions.length() - 1));
        }
        return version >= Short.parseShort(ends[0])
                && version <= Short.parseShort(ends[ends.length - 1]);
    }
}
